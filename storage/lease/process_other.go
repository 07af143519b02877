//go:build !linux

package lease

// Elsewhere nothing tells that a process has ended: its lease does.
func self() string { return "" }

func ended(string) bool { return false }
