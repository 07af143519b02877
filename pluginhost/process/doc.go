// Package process owns the operating system's side of a plugin: it starts the
// process, bounds it, reads what it prints and ends it with all of its children.
//
// hashicorp/go-plugin gets a [Process] as its runner and is told nothing else.
// In particular it never sees standard error, whose parser there can be made to
// panic by a plugin, nor anything on standard output but the handshake.
//
//	stdout ─► handshake ─► go-plugin        noise before it: kept for the error; after it: discarded
//	stderr ─► lines, cut at 64 KiB ─► Spec.Line
//	stdin  ◄─ held open; its end tells the plugin that the host has died
//
// On Linux the kernel also kills the process when its host dies. That signal is
// tied to the thread that started it, so all are started by one thread that
// lives as long as the host.
package process
