// Package seal seals secrets at rest: signing secrets, headers, credentials.
//
// A [Keyring] holds one or more keys, of which the primary one seals and all
// open. [Ensure] binds it to the database: the ids of the keys and a check
// value for each stand in table sys_keyring, so that a node with another key
// refuses to start instead of writing what its neighbours can't read. The keys
// themselves are never in the database.
//
// # Rotation
//
// First every node learns the new key, then it becomes the primary one, so
// that no node meets a text it can't open:
//
//  1. [Keyring.Add] and [Keyring.WriteFile]; give the file to every node and
//     restart it.
//  2. [Keyring.Promote] and WriteFile; give the file to every node and restart
//     it. From the first start on, a node without the new key is refused.
//
// Old keys stay in the keyring to open what they sealed.
//
// # Format
//
// A sealed text is "s1." and unpadded base64url of Tink's AEAD ciphertext,
// which starts with the id of its key. The algorithm of new keys is
// XAES-256-GCM, whose nonces are long enough to be random for any number of
// texts (https://c2sp.org/XAES-256-GCM). A keyring's own text is "ohk1." and
// unpadded base64url of Tink's binary keyset.
package seal
