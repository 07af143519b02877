package data

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
)

// Mask is what a read shows of a secret that is set.
const Mask = "••••••••"

const refPrefix = "secret:sec_"

// ErrNoSecret is returned by [Engine.Reveal] for a reference that leads
// nowhere.
var ErrNoSecret = errors.New("data: no such secret")

// secretWrite is a new plaintext, or a reference that is to be kept.
type secretWrite struct{ plaintext, keep string }

// isRef reports whether a text looks like a reference to a secret.
func isRef(text string) bool { return strings.HasPrefix(text, refPrefix) }

// secretRow is a sealed value on its way into sys_secret.
type secretRow struct{ ref, field, record, sealed string }

// seal makes the rows of a draft's new secrets and puts the references into
// values. Sealing anew on every attempt of a transaction is harmless.
func (e *Engine) seal(object, record string, secrets map[string]secretWrite, values Record) ([]secretRow, error) {
	var rows []secretRow
	for _, field := range slices.Sorted(maps.Keys(secrets)) {
		w := secrets[field]
		if w.keep != "" {
			continue
		}
		if e.keyring == nil {
			return nil, errors.New("seal a secret: the host has no keyring")
		}
		var raw [16]byte
		_, _ = rand.Read(raw[:]) // never fails
		ref := refPrefix + hex.EncodeToString(raw[:])
		sealed, err := e.keyring.Seal([]byte(w.plaintext), secretAAD(ref))
		if err != nil {
			return nil, fmt.Errorf("seal field %q of %s/%s: %w", field, object, record, err)
		}
		rows = append(rows, secretRow{ref, field, record, sealed})
		values[field] = ref
	}
	return rows, nil
}

// secretAAD binds a sealed value to its reference.
func secretAAD(ref string) []byte { return []byte("sys_secret/" + strings.TrimPrefix(ref, "secret:")) }

// insertSecrets stores sealed values beside their record, in its transaction.
func (e *Engine) insertSecrets(ctx context.Context, object string, rows []secretRow, now time.Time) error {
	for chunk := range slices.Chunk(rows, 500) {
		b := e.builder()
		b.text("INSERT INTO sys_secret (id, object_name, record_id, field_name, sealed, created_at) VALUES ")
		for i, row := range chunk {
			if i > 0 {
				b.text(", ")
			}
			b.text("(")
			for _, text := range []string{strings.TrimPrefix(row.ref, "secret:"), object, row.record, row.field, row.sealed} {
				b.arg(kindText, text)
				b.text(", ")
			}
			b.arg(kindInstant, now.UnixMilli())
			b.text(")")
		}
		if _, err := e.db.Write(ctx).ExecContext(ctx, b.String(), b.args...); err != nil {
			return fmt.Errorf("store secrets of %s: %w", object, err)
		}
	}
	return nil
}

// dropSecrets removes the sealed values behind references that no record holds
// any more.
func (e *Engine) dropSecrets(ctx context.Context, refs []string) error {
	for chunk := range slices.Chunk(refs, 1000) {
		b := e.builder()
		b.text("DELETE FROM sys_secret WHERE id IN (")
		for i, ref := range chunk {
			if i > 0 {
				b.text(", ")
			}
			b.arg(kindText, strings.TrimPrefix(ref, "secret:"))
		}
		b.text(")")
		if _, err := e.db.Write(ctx).ExecContext(ctx, b.String(), b.args...); err != nil {
			return fmt.Errorf("remove secrets: %w", err)
		}
	}
	return nil
}

// refsOf lists the references that a stored record holds.
func (t *table) refsOf(record Record) []string {
	var refs []string
	for _, c := range t.sealed {
		if ref, ok := record[c.Name].(string); ok && isRef(ref) {
			refs = append(refs, ref)
		}
	}
	return refs
}

// Reveal opens the reference of a secret field. It serves the host and its
// plugins: ctx must carry a system principal. Errors are [ErrNoSecret] and
// those of the keyring.
func (e *Engine) Reveal(ctx context.Context, ref string) ([]byte, error) {
	if !identity.From(ctx).System {
		return nil, denied("sys_secret", &identity.DeniedError{Permission: "reveal", Object: "sys_secret"})
	}
	if e.keyring == nil {
		return nil, errors.New("reveal a secret: the host has no keyring")
	}
	b := e.builder()
	b.text("SELECT sealed FROM sys_secret WHERE id = ")
	b.arg(kindText, strings.TrimPrefix(ref, "secret:"))
	var sealed string
	err := e.db.Read(ctx).QueryRowContext(ctx, b.String(), b.args...).Scan(&sealed)
	switch {
	case errors.Is(err, sql.ErrNoRows), !isRef(ref):
		return nil, ErrNoSecret
	case err != nil:
		return nil, fmt.Errorf("read secret: %w", err)
	}
	plaintext, err := e.keyring.Open(sealed, secretAAD(ref))
	if err != nil {
		return nil, fmt.Errorf("open secret: %w", err)
	}
	return plaintext, nil
}

// shown is what callers see of a sealed field: writers get the reference of a
// secret back, everything else is the mask.
func shown(c *column, value any, echo bool) any {
	switch {
	case value == nil:
		return nil
	case echo && c.Type == object.Secret:
		return value
	default:
		return Mask
	}
}
