// Verifies deliveries in Node.js without dependencies. Types: verify.d.mts.
import { createHmac, timingSafeEqual } from "node:crypto";

// Says whether rawBody (a Buffer of the bytes as received) was signed with
// secret. headers is Node's req.headers: names in lower case, several values
// of one name joined by a comma, which no signature matches.
export function verify(secret, rawBody, headers) {
  if (secret.length === 0) return false;
  const want = createHmac("sha256", secret).update(rawBody).digest();
  let ok = false;
  for (const name of ["x-objectstack-signature", "x-objectstack-signature-previous"]) {
    const match = /^sha256=([0-9a-f]{64})$/i.exec(headers[name] ?? "");
    if (match && timingSafeEqual(Buffer.from(match[1], "hex"), want)) ok = true;
  }
  return ok;
}

// The same for the Standard Webhooks headers. A secret that begins with whsec_
// holds the key in base64. Deliveries older or newer than tolerance seconds
// are refused, so that a recorded request cannot be played back later.
export function verifyStandard(secret, rawBody, headers, now = Date.now() / 1000, tolerance = 300) {
  const key = secret.startsWith("whsec_") ? Buffer.from(secret.slice(6), "base64") : Buffer.from(secret);
  const id = headers["webhook-id"] ?? "";
  const timestamp = headers["webhook-timestamp"] ?? "";
  if (key.length === 0 || id === "" || !/^\d{1,12}$/.test(timestamp)) return false;
  if (Math.abs(now - Number(timestamp)) > tolerance) return false;
  const want = createHmac("sha256", key).update(`${id}.${timestamp}.`).update(rawBody).digest();
  let ok = false;
  for (const part of (headers["webhook-signature"] ?? "").split(" ")) {
    const [version, signature] = part.split(",", 2);
    const got = Buffer.from(signature ?? "", "base64");
    if (version === "v1" && got.length === want.length && timingSafeEqual(got, want)) ok = true;
  }
  return ok;
}
