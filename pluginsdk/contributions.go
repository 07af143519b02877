package pluginsdk

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/objecthost/objecthost/core/event"
)

// Contributor is implemented by plugins that contribute more than their core
// manifest says. Contributions is called once, before Init, and must not
// depend on the environment.
type Contributor interface {
	Contributions() Contributions
}

// Contributions are the handlers and services of a plugin.
type Contributions struct {
	Events   []EventHandler
	Before   []BeforeHook
	After    []AfterHook
	Services []Service
	Nodes    []FlowNode
}

// EventHandler handles events durably: every event that was committed since the
// plugin was first enabled is handed over at least once, and the events of one
// record in the order of their writes.
type EventHandler struct {
	// Name identifies the handler's place in the log for ever: a lower-case
	// letter, then letters, digits, _ and -, at most 40 characters.
	Name string
	// Object and Types choose the events; empty means all that are granted.
	Object string
	Types  []string
	// Batch is how many events a call gets at most: 1 to 1000, 0 means 200.
	Batch int
	// Handle handles a batch. After an error the batch comes again, with
	// growing pauses.
	Handle func(ctx context.Context, events []*event.Event) error
}

// OnError is what a hook's failure, its deadline or the plugin's absence means
// for the write.
type OnError string

// FailClosed refuses the write, FailOpen lets it pass. There is no default.
const (
	FailClosed OnError = "fail_closed"
	FailOpen   OnError = "fail_open"
)

// The operations that hooks may ask for.
const (
	OpCreate = "create"
	OpUpdate = "update"
	OpDelete = "delete"
)

// BeforeHook runs before a record is validated and written, outside of any
// transaction, and may change the values or refuse the write (see [Refuse]). Of
// several hooks for an object each sees the values that the one before left.
type BeforeHook struct {
	// Object is the object whose writes are looked at.
	Object string
	// Operations are some of the operations; none means create and update.
	Operations []string
	// Deadline bounds one call: 1 ms to 30 s, 0 means 2 s.
	Deadline time.Duration
	// OnError is required.
	OnError OnError
	// Run returns the values to set, nil for none.
	Run func(ctx context.Context, w Write) (Record, error)
}

// AfterHook runs after a write has been committed, in the background: it is
// not durable and cannot refuse. What must not be missed is an [EventHandler].
type AfterHook struct {
	Object     string
	Operations []string
	Deadline   time.Duration
	Run        func(ctx context.Context, w Write) error
}

// Write is a write as hooks see it.
//
// Operation is create, update or delete, and update_where or delete_where for a
// write of everything that a filter selects, which hooks of update and delete
// get once, without an ID or the records before.
type Write struct {
	Object, Operation, ID string
	// Values are what is written. Before is the record before the write, nil on
	// create. Secrets are in neither.
	Values, Before Record
	// UserID and OrganizationID tell in whose name the write is made.
	UserID, OrganizationID string
}

// Service is a named service that other plugins and the host call.
type Service struct {
	Name string
	// Call serves a method with a JSON payload.
	Call func(ctx context.Context, method string, payload json.RawMessage) (json.RawMessage, error)
}

// The bounds of a hook's deadline.
const (
	DefaultDeadline = 2 * time.Second
	MaxDeadline     = 30 * time.Second
)

// The bounds of a batch of events.
const (
	DefaultBatch = 200
	MaxBatch     = 1000
)

var handlerName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,39}$`)

// validate returns the first thing that is wrong.
func (c Contributions) validate() error {
	seen := map[string]bool{}
	for _, h := range c.Events {
		switch {
		case !handlerName.MatchString(h.Name):
			return fmt.Errorf("pluginsdk: event handler %q: not a name", h.Name)
		case seen[h.Name]:
			return fmt.Errorf("pluginsdk: event handler %q: declared twice", h.Name)
		case h.Handle == nil:
			return fmt.Errorf("pluginsdk: event handler %q: no Handle", h.Name)
		case h.Batch < 0 || h.Batch > MaxBatch:
			return fmt.Errorf("pluginsdk: event handler %q: Batch must be 0 to %d", h.Name, MaxBatch)
		}
		seen[h.Name] = true
	}
	for _, h := range c.Before {
		if h.OnError != FailClosed && h.OnError != FailOpen {
			return fmt.Errorf("pluginsdk: before hook of %q: OnError must be FailClosed or FailOpen", h.Object)
		}
		if err := validHook("before", h.Object, h.Operations, h.Deadline, h.Run == nil); err != nil {
			return err
		}
	}
	for _, h := range c.After {
		if err := validHook("after", h.Object, h.Operations, h.Deadline, h.Run == nil); err != nil {
			return err
		}
	}
	names := map[string]bool{}
	for _, s := range c.Services {
		if s.Name == "" || names[s.Name] || s.Call == nil {
			return fmt.Errorf("pluginsdk: service %q: needs a name of its own and Call", s.Name)
		}
		names[s.Name] = true
	}
	return validNodes(c.Nodes)
}

func validHook(kind, object string, operations []string, deadline time.Duration, missing bool) error {
	fail := func(reason string) error { return fmt.Errorf("pluginsdk: %s hook of %q: %s", kind, object, reason) }
	switch {
	case object == "":
		return fail("no object")
	case missing:
		return fail("no Run")
	case deadline < 0 || deadline > MaxDeadline || (deadline > 0 && deadline < time.Millisecond):
		return fail("the deadline must be 1 ms to 30 s")
	}
	for i, op := range operations {
		if (op != OpCreate && op != OpUpdate && op != OpDelete) || slices.Contains(operations[:i], op) {
			return fail(fmt.Sprintf("operation %q is unknown or named twice", op))
		}
	}
	return nil
}
