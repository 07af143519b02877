package data

import "context"

// Operation is what a write does.
type Operation string

// The operations. The last two are predicate writes: one statement over all
// records that a filter selects.
const (
	OpCreate      Operation = "create"
	OpUpdate      Operation = "update"
	OpDelete      Operation = "delete"
	OpUndelete    Operation = "undelete"
	OpPurge       Operation = "purge"
	OpUpdateWhere Operation = "update_where"
	OpDeleteWhere Operation = "delete_where"
)

// Write is a write that is about to happen, as handlers of
// [Engine.BeforeWrite] see it.
type Write struct {
	Object    string
	Operation Operation
	// ID is the record's id; empty on create (unless the creator chose one)
	// and for predicate writes.
	ID string
	// Values are what the caller gave, with plaintexts of secrets. Handlers
	// may change the map. Nil for deletes.
	Values Record
	// Before is the stored record with secrets as their references; nil on
	// create and for predicate writes. When the record changes before the
	// transaction has locked it, the whole write starts anew.
	Before Record
	// Where selects the records of a predicate write.
	Where Filter
}

// Change is a write that has been made in the transaction of the context, as
// handlers of [Engine.WithinWrite] see it.
type Change struct {
	Object    string
	Operation Operation
	ID        string
	// Before and After are the whole records, internal fields included and
	// secrets as their references; nil where they do not apply. They must not
	// be changed.
	Before, After Record
	// Changes are the columns that an update wrote.
	Changes Record
	// Matched is the number of records of a predicate write.
	Matched int64
}

// BeforeWrite adds a handler for writes of an object, "" for every object. It
// runs before validation and before the write's transaction opens (unless the
// caller's context carries one already), after handlers that were added
// earlier. It may change the values; an error refuses the write and reaches
// the caller unwrapped, see [Refuse] and [Invalid]. Handlers are added before
// the first write.
func (e *Engine) BeforeWrite(object string, handler func(context.Context, *Write) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.before[object] = append(e.before[object], handler)
}

// WithinWrite adds a handler that runs inside the transaction of every write
// of an object, "" for every object, after the row was written. What it writes
// with the context commits with the record; an error rolls both back. It may
// be called again when the transaction is. It must be quick and must not call
// out of the process. Cascades of deletes run it too.
func (e *Engine) WithinWrite(object string, handler func(context.Context, *Change) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.within[object] = append(e.within[object], handler)
}

// handlers lists those of every object before those of the given one, in a
// slice of its own: no lock is held while they run.
func handlers[H any](e *Engine, registered map[string][]H, object string) []H {
	e.mu.RLock()
	defer e.mu.RUnlock()
	all, own := registered[""], registered[object]
	return append(all[:len(all):len(all)], own...)
}

// runBefore stops at the first refusal and hands it on as it is.
func (e *Engine) runBefore(ctx context.Context, w *Write) error {
	for _, handler := range handlers(e, e.before, w.Object) {
		if err := handler(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// hasBefore tells whether the stored record has to be read for handlers.
func (e *Engine) hasBefore(object string) bool { return len(handlers(e, e.before, object)) > 0 }

// runWithin shows changes to the handlers, one after the other.
func (e *Engine) runWithin(ctx context.Context, changes ...*Change) error {
	for _, change := range changes {
		for _, handler := range handlers(e, e.within, change.Object) {
			if err := handler(ctx, change); err != nil {
				return err
			}
		}
	}
	return nil
}
