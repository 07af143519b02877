// Package core is the kernel that an objecthost binary is built around.
//
// A host program makes a [Kernel], hands it plugins with Use, and starts it.
// The kernel orders the plugins by what they depend on, initializes and starts
// them one after the other, and stops them in exactly the reverse order.
// Plugins find each other through services: a service is a value registered
// under a typed [Key], and the key's string is its public name.
//
//	Start:  validate, order ─► Init all ─► Start all ─► ready, bootstrapped, listening
//	Stop:   shutdown ─► Stop all, reversed ─► dispose of services, reversed
//
// What the kernel promises:
//
//   - What can be known to be wrong beforehand is reported at once, before any
//     plugin's code runs.
//   - Every plugin whose Init was called is stopped exactly once, in the
//     reverse order, whatever failed: a plugin, a hook, a deadline, the boot as
//     a whole.
//   - A deadline ends the plugin's context. A plugin that ignores that is left
//     behind and can no longer register anything.
//   - A panic in a plugin's code is an error that names the plugin. This holds
//     for the calls that the kernel makes, not for goroutines of the plugin.
//   - No lock is held while a plugin's code runs.
//
// The package and everything below it import the standard library only, so
// that a plugin author pulls in nothing else.
package core
