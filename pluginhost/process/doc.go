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
// Where a control group can be had, each process gets one of its own. It bounds
// the number of tasks, and nothing that the process started gets out of it: all
// of it ends with the process, and at the latest when the next host sweeps.
//
// On Linux the kernel also kills the process when its host dies. That signal is
// tied to the thread that started it, so all are started by one thread that
// lives as long as the host.
package process
