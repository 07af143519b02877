// Package core is the kernel that an objecthost binary is built around.
//
// A host program makes a [Kernel], hands it plugins with Use, and starts it.
// The kernel orders the plugins by what they depend on, initializes and starts
// them one after the other, and stops them in exactly the reverse order.
// Plugins find each other through services: a service is a value registered
// under a typed [Key], and the key's string is its public name.
//
// The package and everything below it import the standard library only, so
// that a plugin author pulls in nothing else.
package core
