// Package auth tells who calls and decides what they may do.
//
// Callers prove who they are with an API key or a session.
//
// A key is osk_ and the base64url form of 32 random bytes, shown once when it is
// made. It is sent as X-API-Key, as "Authorization: ApiKey osk_…" or as
// "Authorization: Bearer osk_…". The store holds the hex SHA-256 of a key only,
// so a leaked table opens nothing, and the look-up by hash takes the same time
// for every wrong key.
//
// A session begins with a password (argon2id), at an OpenID Connect provider, or
// with the setup token, and is sent as "Authorization: Bearer …" or as a cookie.
// It lies in the database, by its hash too, and can be ended at any time. Sign-ins
// are counted before they are looked at; see [Service.SignIn].
//
// # What a caller may do
//
// The service answers the questions of identity.Authorizer at the moment when
// they are asked, also for work that goes on after the request has ended. A key
// carries [Scopes]; a user has roles in an organization, which allow scopes as
// well. A key that a user made is bound by both. A principal whose key or session
// has ended, or whose user is disabled, is refused like an anonymous one.
//
// A caller acts in one organization, and whatever it may do ends there: the data
// engine sees to that. Permissions that would reach over organizations
// (core.Permission.Host) are for callers of the default one only. Nobody gives
// others more than they may do.
//
// A store that is no driver.Directory has keys only: then the parts about users
// are absent.
//
// # Revocation
//
// What was looked up is kept for [Config].CacheTTL, two seconds unless
// configured. A change takes effect at once on the node that made it and within
// that time on every other node; the expiry of a key or session is judged on
// every use.
//
// # The first ones
//
// [Service.EnsureFirstKey] makes a key with the scope admin when the store has
// never held one, [Service.EnsureSetupToken] a token that makes the first user,
// [Service.EnsureAdministrator] a user from the configuration. Hosts that start at
// the same time agree on one of them. Whoever loses the key before writing it down
// makes another one as the first user.
package auth
