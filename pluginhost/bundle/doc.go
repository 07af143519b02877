// Package bundle is how a plugin is shipped: a folder with a manifest, its
// signature and the files that the manifest names.
//
//	crm/
//	  plugin.json       what the plugin is, wants and adds, and the SHA-256 of every file
//	  plugin.json.sig   ed25519:<key id>:<base64 of the signature of plugin.json's bytes>
//	  bin/crm           …
//
// The signature covers the manifest and the manifest covers the files, so that
// one signature vouches for all of it. [Bundle.Materialize] copies the files
// and compares the hashes of the bytes that it wrote: what is run from the copy
// is what was verified, whatever becomes of the folder meanwhile.
package bundle
