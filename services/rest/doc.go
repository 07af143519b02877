// Package rest is the host's HTTP server. It serves the data and metadata API
// of services/data, discovery and health, and the routes that plugins
// contribute in their manifests.
//
// # Envelopes
//
// Answers come in two families, which existing clients tell apart by path. The
// data, metadata and discovery routes answer bare JSON and refuse with
//
//	{"error": "<text>", "code": "<CODE>", "object"?, "field"?, "fields"?}
//
// All other routes, and requests that no route takes, answer in a wrapping:
//
//	{"success": true, "data": …}
//	{"success": false, "error": {"code": "<CODE>", "message": "<text>", "details"?}}
//
// The text of a 5xx answer is withheld and logged under the request's id, which
// every answer carries as X-Request-Id.
//
// # Reading requests
//
// Bodies are JSON in valid UTF-8, at most [Config].BodyLimit bytes. Numbers keep
// their digits. Refused with 400 INVALID_REQUEST, where lenient readers would
// guess: an empty body where one is needed, a key that stands twice in one
// object, text after the value, half surrogate pairs, and deep nesting (more than
// 64 levels).
//
// # Routes
//
// A route of a plugin is served as its manifest says: for anybody when it is
// anonymous, else for authenticated callers that have its permission. Two routes
// that differ at most in the names of their parameters fail the boot. Where two
// patterns fit one path, the one whose segment is spelled out wins over the one
// with a parameter, from the left.
//
// HEAD is served by a path's GET, OPTIONS tells a path's methods.
package rest
