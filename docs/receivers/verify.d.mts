type Headers = Record<string, string | string[] | undefined>;

/** Says whether rawBody was signed with secret (X-Objectstack-Signature or -Previous). */
export function verify(secret: string | Uint8Array, rawBody: Uint8Array, headers: Headers): boolean;

/** The same for the Standard Webhooks headers; now and tolerance are in seconds. */
export function verifyStandard(
  secret: string,
  rawBody: Uint8Array,
  headers: Headers,
  now?: number,
  tolerance?: number,
): boolean;
