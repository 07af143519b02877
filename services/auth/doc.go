// Package auth tells who calls and decides what they may do.
//
// Callers prove who they are with an API key: osk_ and the base64url form of
// 32 random bytes, shown once when it is made. A key is sent as X-API-Key, as
// "Authorization: ApiKey osk_…" or as "Authorization: Bearer osk_…". The store
// holds the hex SHA-256 of a key only, so a leaked table opens nothing, and the
// look-up by hash takes the same time for every wrong key.
//
// A key carries [Scopes]. The service answers the questions of
// identity.Authorizer from the scopes of the key in the caller's principal, also
// for work that goes on after the request has ended: a principal whose key has
// been revoked since is refused like an anonymous one.
//
// # Revocation
//
// Keys that were looked up are kept for [Config].CacheTTL, two seconds unless
// configured. A revocation takes effect at once on the node that made it and
// within that time on every other node; the expiry of a key is judged on every
// use.
//
// # The first key
//
// [Service.EnsureFirstKey] makes a key with the scope admin when the store has
// never held one. Hosts that start at the same time agree on one of them. Whoever
// loses that key before writing it down makes another one with the host's
// command line.
package auth
