"""Runs verify.py over vectors.json."""

import base64
import json
import pathlib
import sys

from verify import verify, verify_standard

vectors = json.loads(pathlib.Path(__file__).with_name("vectors.json").read_text(encoding="utf-8"))["vectors"]
bad = 0
for v in vectors:
    body = base64.b64decode(v["body"])
    if v["scheme"] == "standard":
        got = verify_standard(v["secret"], body, v["headers"], v["now"])
    else:
        got = verify(v["secret"].encode(), body, v["headers"])
    if got != v["valid"]:
        print(f"python: {v['name']}: {got}, want {v['valid']}", file=sys.stderr)
        bad += 1
if bad or not vectors:
    sys.exit(1)
print(f"python: {len(vectors)} vectors")
