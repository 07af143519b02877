// Package transfer copies all tables of one database into an empty one, of the
// same dialect or of the other.
//
// It knows no table by its meaning: both databases have the tables already, and
// what differs between dialects is described by the caller. Batches and the
// place where to go on commit together in the target, so that a copy that was
// killed is resumed; until everything was compared, the target says that it is
// unfinished.
package transfer
