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
// Records are maps of plain JSON values: numbers are json.Number and keep up
// to 38 digits, times are ISO 8601 text in UTC with milliseconds. Both
// dialects accept the same values and answer filters and sorts alike.
package data
