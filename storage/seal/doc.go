// Package seal seals secrets at rest with a keyring that is bound to the
// database.
package seal
