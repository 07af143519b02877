package data

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/storage"
)

// EventLog is where the engine tells of record changes. Append joins the
// transaction of ctx; it may fill in ID and Sequence.
type EventLog interface {
	Append(ctx context.Context, events ...*event.Event) error
}

// Keyring seals the values of secret fields. aad binds a sealed value to its
// place.
type Keyring interface {
	Seal(plaintext, aad []byte) (string, error)
	Open(sealed string, aad []byte) ([]byte, error)
}

// Config is what an engine may be given besides its database.
type Config struct {
	// Events takes the record events. Required.
	Events EventLog
	// Authorizer decides who may do what. Nil admits the system principal only.
	Authorizer identity.Authorizer
	// Keyring seals secret fields. Nil refuses to write them.
	Keyring Keyring
	// Log takes warnings; nil discards them.
	Log *slog.Logger
	// Now is the clock, time.Now when nil.
	Now func() time.Time
}

// Engine defines objects and serves their records. It is safe for concurrent
// use.
type Engine struct {
	db         *storage.DB
	events     EventLog
	authorizer identity.Authorizer
	keyring    Keyring
	log        *slog.Logger
	clock      func() time.Time
	imports    chan struct{} // wakes RunImports

	mu      sync.RWMutex
	tables  map[string]*table
	stored  map[string]int64       // versions of the tables that SaveDefinition keeps
	parents map[string][]reference // by target: who points at it
	before  map[string][]func(context.Context, *Write) error
	within  map[string][]func(context.Context, *Change) error
}

// reference is a field of an object that points at another object.
type reference struct {
	table  *table
	column *column
}

// New makes an engine on an open database, whose own tables it migrates.
func New(ctx context.Context, db *storage.DB, cfg Config) (*Engine, error) {
	if db == nil {
		return nil, errors.New("data: a database is required")
	}
	if cfg.Events == nil {
		return nil, errors.New("data: Config.Events is required")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if err := db.Migrate(ctx, migrations()); err != nil {
		return nil, fmt.Errorf("migrate data: %w", err)
	}
	return &Engine{
		db: db, events: cfg.Events, authorizer: cfg.Authorizer, keyring: cfg.Keyring, log: cfg.Log, clock: cfg.Now, imports: make(chan struct{}, 1),
		tables: map[string]*table{}, stored: map[string]int64{}, parents: map[string][]reference{},
		before: map[string][]func(context.Context, *Write) error{},
		within: map[string][]func(context.Context, *Change) error{},
	}, nil
}

// now is the clock in whole milliseconds, as the database keeps them.
func (e *Engine) now() time.Time { return e.clock().UTC().Truncate(time.Millisecond) }

// DB is the database of the engine, for work that is to commit with a write.
func (e *Engine) DB() *storage.DB { return e.db }

// table finds a definition. Tables are never changed once they are registered,
// so the answer stays good without the lock.
func (e *Engine) table(name string) (*table, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	t, ok := e.tables[name]
	if !ok {
		return nil, errObject(name)
	}
	return t, nil
}

// Object returns a definition with its system columns, or an *[Error] with
// CodeObjectNotFound. The schema is shared and must not be changed.
func (e *Engine) Object(name string) (*object.Schema, error) {
	t, err := e.table(name)
	if err != nil {
		return nil, err
	}
	return &t.schema, nil
}

// Objects returns all definitions, sorted by name.
func (e *Engine) Objects() []*object.Schema {
	e.mu.RLock()
	defer e.mu.RUnlock()
	names := slices.Sorted(maps.Keys(e.tables))
	all := make([]*object.Schema, len(names))
	for i, name := range names {
		all[i] = &e.tables[name].schema
	}
	return all
}

// Describe returns an object as clients see it.
func (e *Engine) Describe(name string) (Description, error) {
	t, err := e.table(name)
	if err != nil {
		return Description{}, err
	}
	return t.describe(), nil
}

// CheckMethod returns an *[Error] with CodeMethodNotAllowed when the object
// is closed to the API's method (see [object.Schema.Allows]), or one with
// CodeObjectNotFound. The REST API asks before it serves a call; calls from Go
// are not bound by it.
func (e *Engine) CheckMethod(objectName, method string) error {
	t, err := e.table(objectName)
	if err != nil {
		return err
	}
	if t.schema.Allows(method) {
		return nil
	}
	return &Error{
		Code: CodeMethodNotAllowed, Object: objectName, Allowed: t.schema.APIMethods(),
		Message: fmt.Sprintf("Operation '%s' is not allowed on object '%s' through the API", method, objectName),
	}
}

// allow asks whether the principal of ctx may do op on the object.
func (e *Engine) allow(ctx context.Context, op identity.Operation, objectName string) error {
	p := identity.From(ctx)
	if p.System {
		return nil
	}
	if e.authorizer != nil {
		err := e.authorizer.Can(ctx, op, objectName)
		if t, unknown := e.table(objectName); err == nil && unknown == nil && t.schema.Permission != "" {
			err = e.authorizer.Has(ctx, t.schema.Permission)
		}
		if err != nil {
			return denied(objectName, err)
		}
		return nil
	}
	if !p.Authenticated() {
		return denied(objectName, identity.ErrUnauthenticated)
	}
	return denied(objectName, &identity.DeniedError{Permission: string(op), Object: objectName})
}

// May asks whether the principal of ctx may do op on the object's records: nil,
// or an *[Error] with CodeUnauthenticated or CodePermissionDenied. Objects that
// ask for a system permission of their own ask for it here too.
func (e *Engine) May(ctx context.Context, op identity.Operation, objectName string) error {
	return e.allow(ctx, op, objectName)
}

// open finds the table and asks for the permission.
func (e *Engine) open(ctx context.Context, op identity.Operation, objectName string) (*table, error) {
	if err := e.allow(ctx, op, objectName); err != nil {
		return nil, err
	}
	t, err := e.table(objectName)
	if err != nil {
		return nil, err
	}
	return e.restrict(ctx, t), nil
}

// restrict hides the fields that the principal of ctx has no permission for.
func (e *Engine) restrict(ctx context.Context, t *table) *table {
	if identity.From(ctx).System {
		return t
	}
	return t.restrict(func(permission string) bool {
		return e.authorizer == nil || e.authorizer.Has(ctx, permission) != nil
	})
}

// scope limits a filter to what the principal may see: its organization, and
// live records.
func (t *table) scope(ctx context.Context, p predicate, trash bool) predicate {
	g := &group{}
	if k, all := p.(constant); !all || !bool(k) {
		g.parts = append(g.parts, p)
	}
	g.parts = append(g.parts, t.own(identity.From(ctx)))
	if t.trash {
		g.parts = append(g.parts, &leaf{column: t.byName["deleted_at"], test: testNull, negate: trash})
	}
	return simplify(g)
}

// builder starts a statement in the database's dialect.
func (e *Engine) builder() *builder { return &builder{postgres: e.db.Dialect() == storage.Postgres} }

// idAlphabet is that of nanoids, in the order of the bytes.
const idAlphabet = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"

// newID looks like a nanoid of 16 characters. Its first seven are the time in
// milliseconds, until the year 2109, the others 54 random bits: ids grow, so that
// records that are written together are neighbours in every index that ends in
// the id, and a write touches few pages of it.
func newID() string {
	const clock = 7
	var raw [16]byte
	_, _ = rand.Read(raw[clock:]) // never fails
	now := time.Now().UnixMilli()
	for i := clock - 1; i >= 0; i-- {
		raw[i] = byte(now) //nolint:gosec // its low bits
		now >>= 6
	}
	for i, b := range raw {
		raw[i] = idAlphabet[b&63]
	}
	return string(raw[:])
}

// digest is a hex SHA-256.
func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
