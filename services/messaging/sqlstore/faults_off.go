//go:build !faults

package sqlstore

// fence returns the statement that saves outcomes, which is fenced by the
// claim's token.
func fence(query string) string { return query }

// leaseFence returns the condition that a process's lease lives.
func leaseFence(condition string) string { return condition }
