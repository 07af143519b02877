// Package data is the data engine: it turns object definitions into tables and
// serves their records.
//
// An [Engine] takes definitions through [Engine.Define], creates or extends
// their tables, and reads and writes records in the name of the principal that
// the context carries. A record write, its secrets, what handlers registered
// with [Engine.WithinWrite] do, and the events that tell of it commit in one
// transaction; a context that already carries one is joined.
//
//	caller ─► permission ─► BeforeWrite ─► validation ─┐
//	                                                   ▼ transaction
//	              row lock, version ─► references ─► row ─► WithinWrite ─► event
//
// Handlers of BeforeWrite see the stored record. When it changed before the
// lock was taken, the whole write starts anew, five times at most, and then
// ends in CONCURRENT_UPDATE.
//
// # Records
//
// Records are maps of plain JSON values. Both dialects accept the same values,
// byte for byte, and hold them so:
//
//	field types                          in a record          column
//	text … color, select, lookup, user   string               TEXT, compared by bytes
//	number … progress                    json.Number, ≤ 38    NUMERIC; on SQLite TEXT under the
//	                                     digits, canonical    collation decimal
//	boolean, toggle                      bool                 BOOLEAN; on SQLite 0 and 1
//	datetime                             ISO text in UTC with epoch milliseconds
//	                                     milliseconds
//	date, time                           text                 TEXT
//	multiselect … tags, multiple         []any of strings     TEXT holding a JSON array
//	json, address, location              any JSON value       TEXT holding JSON
//	secret, password                     [Mask]; a reference  TEXT holding a reference
//	                                     for the writer
//
// A text in an index is bounded, because PostgreSQL bounds the entries of its
// indexes. Times are cut to milliseconds. updated_at is a record's version: it
// grows with every write by at least a millisecond, also when the clock stands
// still or another host's clock is ahead.
//
// # Filters
//
// Filters are two-valued. A comparison with a null field is false, and what
// negates ($ne, $nin, $notContains, $not) is its exact opposite and therefore
// includes such records. They are brought into negation normal form first, so
// that SQL's third truth value never reaches a NOT. Text operators are literal
// and by letter case; $icontains, $ilike and searches fold A to Z only, which
// both databases do alike. Nulls sort first ascending, and the id breaks ties,
// which is also the order in which indexes are made.
//
// # References
//
// What a lookup points at is checked when it is written, under a lock that a
// delete of the target waits for; deletes look for references under their own
// lock. So no reference is left dangling, whichever comes first. There are no
// foreign keys in the database: definitions may change, and events have to be
// told of what a cascade does.
//
// # Organizations
//
// Reads and writes are limited to the records of the principal's organization,
// and new records belong to it; those of the default organization have no
// organization_id. A record of another organization is not there. Only the
// host itself (identity.System) works in all organizations.
//
// Ids are unique over all organizations. Once there are several of them the
// host chooses the ids, and counts autonumber fields for each on its own, so
// that nothing tells what another one has. A field that is unique globally
// tells by its nature.
//
// # Secrets
//
// The plaintext of a secret field is sealed by a [Keyring], bound to the
// reference that the column holds, and stored in sys_secret. Replacing or
// clearing it, or deleting the record, removes the sealed value in the same
// transaction. [Engine.Reveal] opens references for the host and its plugins.
// Sealed and internal fields appear in no event, no filter and no sort.
//
// # Tables
//
// sys_data_field remembers how the values of every field are kept, so that a
// definition that would read them otherwise is refused; sys_data_counter holds
// the last numbers of autonumber fields; sys_data_object holds the definitions
// that came through [Engine.SaveDefinition].
package data
