// Package bench measures what a machine can do with a host: it runs the host's
// real services in this process on a database of its own, and a receiver in
// another process that verifies every signature.
//
// Every figure stands beside that of a bare client: 64 goroutines that post the
// same signed bodies to the same receiver with one http.Client, and nothing
// else. A run of the client comes before each run of the host, so that both
// meet the same machine; the ratio of the two says more than either rate.
//
// What counts as delivered is counted three times: by the receiver (different
// ids with a right signature), in the outbox (rows that ended as success) and in
// its attempts. When the three differ the run is an error, not a figure.
package bench
