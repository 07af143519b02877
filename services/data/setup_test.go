package data_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// tableLog keeps events in a table, so that they share the fate of the
// transaction that appended them.
type tableLog struct{ db *storage.DB }

func (l *tableLog) Append(ctx context.Context, events ...*event.Event) error {
	for _, e := range events {
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		query := "INSERT INTO test_event (body) VALUES ($1)"
		if _, err := l.db.Write(ctx).ExecContext(ctx, query, string(text)); err != nil {
			return err
		}
	}
	return nil
}

func (l *tableLog) all(t *testing.T) []event.Event {
	t.Helper()
	rows, err := l.db.Read(t.Context()).QueryContext(t.Context(), "SELECT body FROM test_event ORDER BY n")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var events []event.Event
	for rows.Next() {
		var body string
		if err := rows.Scan(&body); err != nil {
			t.Fatal(err)
		}
		var e event.Event
		if err := json.Unmarshal([]byte(body), &e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

func (l *tableLog) clear(t *testing.T) {
	t.Helper()
	exec(t, l.db, "DELETE FROM test_event")
}

func exec(t testing.TB, db *storage.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Write(t.Context()).ExecContext(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}

// aesKeyring is a keyring of one key.
type aesKeyring struct{ aead cipher.AEAD }

func newKeyring(t testing.TB) data.Keyring {
	t.Helper()
	var key [32]byte
	_, _ = rand.Read(key[:])
	block, err := aes.NewCipher(key[:])
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	return &aesKeyring{aead}
}

func (k *aesKeyring) Seal(plaintext, aad []byte) (string, error) {
	nonce := make([]byte, k.aead.NonceSize())
	_, _ = rand.Read(nonce)
	return base64.StdEncoding.EncodeToString(k.aead.Seal(nonce, nonce, plaintext, aad)), nil
}

func (k *aesKeyring) Open(sealed string, aad []byte) ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(sealed)
	if err != nil {
		return nil, err
	}
	n := k.aead.NonceSize()
	return k.aead.Open(nil, raw[:n], raw[n:], aad)
}

// clock is a time that tests move.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

type bundle struct {
	*data.Engine
	db    *storage.DB
	log   *tableLog
	clock *clock
	// as is the context of an ordinary user, system that of the host.
	as, system context.Context
}

// allowAll lets every authenticated caller do everything.
type allowAll struct{}

func (allowAll) Can(ctx context.Context, _ identity.Operation, _ string) error {
	if !identity.From(ctx).Authenticated() {
		return identity.ErrUnauthenticated
	}
	return nil
}

func (allowAll) Has(context.Context, string) error { return nil }

func setup(t testing.TB, db *storage.DB, schemas ...object.Schema) *bundle {
	t.Helper()
	b := &bundle{db: db, log: &tableLog{db}, clock: &clock{at: time.Date(2026, 11, 30, 17, 2, 15, 225_000_000, time.UTC)}}
	column := "n INTEGER PRIMARY KEY"
	if db.Dialect() == storage.Postgres {
		column = "n BIGINT GENERATED ALWAYS AS IDENTITY"
	}
	exec(t, db, "CREATE TABLE test_event ("+column+", body TEXT NOT NULL)")
	var err error
	b.Engine, err = data.New(t.Context(), db, data.Config{Events: b.log, Authorizer: allowAll{}, Keyring: newKeyring(t), Now: b.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	b.as = identity.With(t.Context(), identity.Principal{UserID: "user1"})
	b.system = identity.With(t.Context(), identity.System())
	if err := b.Define(t.Context(), schemas...); err != nil {
		t.Fatal(err)
	}
	return b
}

func each(t *testing.T, schemas []object.Schema, fn func(t *testing.T, b *bundle)) {
	t.Helper()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) { fn(t, setup(t, db, schemas...)) })
}

func ptr[T any](v T) *T { return &v }

// account is the object of the protocol's captures.
func account() object.Schema {
	return object.Schema{
		Name: "account", Label: "Account", NameField: "name",
		Fields: object.Fields{
			{Name: "name", Type: object.Text, Label: "Name", Required: true, MaxLength: ptr(120), Searchable: ptr(true)},
			{Name: "code", Type: object.Text, Label: "Code", Unique: object.UniqueDefault, MaxLength: ptr(20)},
			{Name: "industry", Type: object.Select, Label: "Industry", Options: []object.Option{
				{Label: "Technology", Value: "technology"}, {Label: "Finance", Value: "finance"}, {Label: "Retail", Value: "retail"},
			}},
			{Name: "annual_revenue", Type: object.Number, Label: "Annual Revenue", Min: "0"},
			{Name: "active", Type: object.Boolean, Label: "Active", DefaultValue: json.RawMessage("true")},
		},
	}
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// jsonOf is a value's JSON, for comparisons.
func jsonOf(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", what, fmt.Sprintf("%#v", got), fmt.Sprintf("%#v", want))
	}
}

// refused checks an error's flat envelope, without the fields named in skip.
func refused(t testing.TB, err error, want string) {
	t.Helper()
	e, ok := err.(*data.Error)
	if !ok {
		t.Errorf("got %v (%T), want an *Error %s", err, err, want)
		return
	}
	var got, wanted any
	if json.Unmarshal([]byte(jsonOf(t, e)), &got) != nil || json.Unmarshal([]byte(want), &wanted) != nil {
		t.Fatalf("not JSON: %s", want)
	}
	if !reflect.DeepEqual(got, wanted) {
		t.Errorf("\n got %s\nwant %s", jsonOf(t, e), want)
	}
}

func jsonNumber(text string) json.Number { return json.Number(text) }

type contextT = context.Context
