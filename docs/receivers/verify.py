"""Verifies deliveries with Python's standard library (3.8 and later)."""

import base64
import binascii
import hashlib
import hmac
import re
import time


def verify(secret: bytes, raw_body: bytes, headers) -> bool:
    """Says whether raw_body, the bytes as received, was signed with secret.

    headers maps names in any letter case to single values.
    """
    if not secret:
        return False
    values = {name.lower(): value for name, value in headers.items()}
    want = hmac.new(secret, raw_body, hashlib.sha256).digest()
    ok = False
    for name in ("x-objectstack-signature", "x-objectstack-signature-previous"):
        match = re.fullmatch(r"sha256=([0-9a-fA-F]{64})", values.get(name, ""))
        if match and hmac.compare_digest(bytes.fromhex(match[1]), want):
            ok = True
    return ok


def verify_standard(secret: str, raw_body: bytes, headers, now=None, tolerance=300) -> bool:
    """The same for the Standard Webhooks headers.

    A secret that begins with whsec_ holds the key in base64. Deliveries older
    or newer than tolerance seconds are refused, so that a recorded request
    cannot be played back later.
    """
    values = {name.lower(): value for name, value in headers.items()}
    delivery, timestamp = values.get("webhook-id", ""), values.get("webhook-timestamp", "")
    try:
        key = base64.b64decode(secret[6:], validate=True) if secret.startswith("whsec_") else secret.encode()
    except binascii.Error:
        return False
    if not key or not delivery or not re.fullmatch(r"[0-9]{1,12}", timestamp):
        return False
    if abs((time.time() if now is None else now) - int(timestamp)) > tolerance:
        return False
    want = hmac.new(key, f"{delivery}.{timestamp}.".encode() + raw_body, hashlib.sha256).digest()
    ok = False
    for part in values.get("webhook-signature", "").split(" "):
        version, _, signature = part.partition(",")
        try:
            got = base64.b64decode(signature, validate=True)
        except (binascii.Error, ValueError):
            continue
        if version == "v1" and hmac.compare_digest(got, want):
            ok = True
    return ok
