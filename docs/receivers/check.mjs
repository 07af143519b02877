// Runs verify.mjs over vectors.json.
import { readFileSync } from "node:fs";
import { verify, verifyStandard } from "./verify.mjs";

const { vectors } = JSON.parse(readFileSync(new URL("vectors.json", import.meta.url), "utf8"));
let bad = 0;
for (const v of vectors) {
  const headers = Object.fromEntries(Object.entries(v.headers).map(([name, value]) => [name.toLowerCase(), value]));
  const body = Buffer.from(v.body, "base64");
  const got = v.scheme === "standard" ? verifyStandard(v.secret, body, headers, v.now) : verify(v.secret, body, headers);
  if (got !== v.valid) {
    console.error(`node: ${v.name}: ${got}, want ${v.valid}`);
    bad++;
  }
}
if (bad > 0 || vectors.length === 0) process.exit(1);
console.log(`node: ${vectors.length} vectors`);
