package webhooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/plugins/webhooks/sqlstore"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/storage/seal"
)

// The system permissions that the plugin introduces.
const (
	PermissionManage    = "webhooks.manage"
	PermissionRedeliver = "webhooks.redeliver"
	PermissionRotate    = "webhooks.rotate"
)

// targets is what the write door needs of the messaging service.
type targets interface {
	PutTarget(ctx context.Context, t messaging.Target) error
	Target(ctx context.Context, source, key, organization string) (*messaging.Target, error)
}

// door guards the writes of webhooks.
type door struct {
	store   *sqlstore.Store
	targets targets
	vault   vault
	// authorizer decides who may write webhooks; nil admits the system
	// principal only.
	authorizer identity.Authorizer
	lookup     func(name string) (*object.Schema, bool)
	// objects lists all definitions.
	objects func() []*object.Schema
	log     *slog.Logger
}

// before checks a write and brings its values into the form in which they are
// stored. It runs before the transaction opens.
func (d *door) before(ctx context.Context, w *data.Write) error {
	if err := d.allow(ctx); err != nil {
		return err
	}
	switch w.Operation {
	case data.OpUpdateWhere, data.OpDeleteWhere:
		return data.Refuse(data.CodeInvalidRequest, ObjectName,
			"Webhooks are written one by one: each has secrets and deliveries of its own")
	case data.OpCreate, data.OpUpdate:
	default:
		return nil
	}
	v, err := normalise(request{
		create: w.Operation == data.OpCreate, values: w.Values, stored: w.Before,
		system: identity.From(ctx).System, lookup: d.lookup,
	})
	if err != nil {
		return writeError(err)
	}
	if err := d.mayRead(ctx, w, &v); err != nil {
		return err
	}
	if err := d.checkStored(ctx, w, &v); err != nil {
		return err
	}
	for column, value := range v.values {
		w.Values[column] = value
	}
	for _, column := range v.drop {
		delete(w.Values, column)
	}
	for _, warning := range v.warnings {
		d.log.WarnContext(ctx, "webhook saved with a warning", "webhook_id", w.ID, "webhook", nameIn(w), "warning", warning)
	}
	return nil
}

// checkStored compares a new definition with the secrets that stay as they
// are: a kind of authentication that the stored credentials do not fit, or a
// signature scheme that the stored secret cannot serve, is refused here, since
// nobody would be told later.
func (d *door) checkStored(ctx context.Context, w *data.Write, v *verdict) error {
	if _, given := w.Values[fieldDefinition]; !given || w.Before == nil {
		return nil
	}
	row := rowOf(w.Before)
	if _, written := v.values[fieldAuth]; written {
		row.Auth = ""
	}
	if _, written := v.values[fieldSecret]; written {
		row.Secret = ""
	}
	kind := v.definition.rules.authType
	if row.Auth == "" {
		kind = messaging.AuthNone // checked with the new credentials, or none are needed
	}
	secret, _, err := openSigning(ctx, d.vault, &row, kind)
	var unreadable *unreadableError
	if err == nil {
		if err := messaging.ValidateSecret(secret, v.definition.rules.signature); err != nil {
			return writeError(&refusal{[]*problem{definitionProblem(codeInvalidValue, "Definition: signature: %s", err)}})
		}
		return nil
	}
	if errors.As(err, &unreadable) {
		if errors.Is(err, seal.ErrUnreadable) || errors.Is(err, data.ErrNoSecret) {
			return nil // its deliveries are parked until a new secret is given
		}
		return writeError(&refusal{[]*problem{definitionProblem(codeInvalidValue,
			"Definition: authentication.type does not fit the stored credentials: %s", unreadable.err)}})
	}
	return err
}

func nameIn(w *data.Write) any {
	if name, given := w.Values[fieldName]; given {
		return name
	}
	return w.Before[fieldName]
}

// allow asks for the permission to write webhooks, which comes on top of the
// permission to write records of the object.
func (d *door) allow(ctx context.Context) error {
	if identity.From(ctx).System {
		return nil
	}
	err := error(&identity.DeniedError{Permission: PermissionManage})
	if d.authorizer != nil {
		err = d.authorizer.Has(ctx, PermissionManage)
	}
	var missing *identity.DeniedError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, identity.ErrUnauthenticated):
		return data.Refuse(data.CodeUnauthenticated, ObjectName, "authentication is required")
	case errors.As(err, &missing):
		return data.Refuse(data.CodePermissionDenied, ObjectName,
			fmt.Sprintf("The permission %s is required to write webhooks", PermissionManage))
	}
	return fmt.Errorf("authorize webhook write: %w", err)
}

// writeError turns an error of normalise into the one that callers know.
func writeError(err error) error {
	var (
		headers *HeaderError
		refused *refusal
	)
	switch {
	case errors.As(err, &headers):
		return data.Refuse("VALIDATION_ERROR", ObjectName, upperFirst(headers.Error()))
	case errors.As(err, &refused):
		fields := make([]data.FieldError, len(refused.problems))
		for i, p := range refused.problems {
			fields[i] = data.FieldError{
				Field: p.field, Code: p.code, Message: p.message, Label: labels[p.field],
				Constraint: p.constraint, Value: p.value, Options: p.options,
			}
		}
		return data.Invalid(ObjectName, fields...)
	}
	return err
}

func upperFirst(s string) string { return string(s[0]-'a'+'A') + s[1:] }

// rotation, carried by a context, makes a write of the signing secret keep the
// old one valid for a while.
type rotation struct{ overlap time.Duration }

type rotationKey struct{}

func withRotation(ctx context.Context, overlap time.Duration) context.Context {
	return context.WithValue(ctx, rotationKey{}, rotation{overlap})
}

// within writes what belongs to a webhook into its own transaction: the
// outbox's target, the marks of the row, and the version that makes every node
// read the row anew.
func (d *door) within(ctx context.Context, c *data.Change) error {
	switch c.Operation {
	case data.OpUpdateWhere, data.OpDeleteWhere:
		return nil // before has refused it
	case data.OpDelete, data.OpPurge:
		if err := d.retire(ctx, c.Before); err != nil {
			return err
		}
		return d.store.Bump(ctx, c.ID)
	}
	if err := d.putTarget(ctx, c); err != nil {
		return err
	}
	if err := d.store.Mark(ctx, c.ID, d.marks(ctx, c)); err != nil {
		return err
	}
	return d.store.Bump(ctx, c.ID)
}

// retire marks the target of a webhook that is gone: rows that wait for it end
// as failed.
func (d *door) retire(ctx context.Context, record data.Record) error {
	row := rowOf(record)
	return d.targets.PutTarget(ctx, messaging.Target{
		Source: messaging.SourceWebhook, Key: row.ID, OrganizationID: row.OrganizationID,
		State: messaging.TargetGone, Reason: "the webhook was deleted",
	})
}

// marks are the columns that the host keeps and no caller writes.
func (d *door) marks(ctx context.Context, c *data.Change) sqlstore.Marks {
	before, after := rowOf(c.Before), rowOf(c.After)
	var m sqlstore.Marks
	_, rotated := ctx.Value(rotationKey{}).(rotation)
	edited := c.Operation == data.OpUpdate && (rotated || !identity.From(ctx).System)
	m.Customized = edited && before.ManagedBy == managedByPackage && !before.Customized
	if c.Before != nil {
		m.SwitchedOn = !before.Active && after.Active
		m.ResetStreak = m.SwitchedOn || before.URL != after.URL
	}
	return m
}

// putTarget brings the outbox's target in line with the webhook.
func (d *door) putTarget(ctx context.Context, c *data.Change) error {
	row := rowOf(c.After)
	if c.Before != nil {
		if old := rowOf(c.Before); old.OrganizationID != row.OrganizationID {
			if err := d.retire(ctx, c.Before); err != nil {
				return err
			}
		}
	}
	parsed, _, _ := parseDefinition([]byte(row.Definition))
	if parsed == nil {
		parsed = &definition{}
	}
	t := targetOf(&row, &parsed.rules)
	current, err := d.targets.Target(ctx, t.Source, t.Key, t.OrganizationID)
	if err != nil {
		return err
	}
	if err := d.sign(ctx, &t, current, &row, parsed.rules.authType); err != nil {
		return err
	}
	if c.Before != nil && rowOf(c.Before).URL != row.URL && t.State == messaging.TargetActive {
		// The outbox begins a new streak of failures for a target that becomes
		// active: those of the old URL do not count against the new one.
		held := t
		held.State, held.Reason = messaging.TargetHeld, "the URL is being changed"
		if err := d.targets.PutTarget(ctx, held); err != nil {
			return err
		}
	}
	return d.targets.PutTarget(ctx, t)
}

// targetOf is a webhook's target without its secrets.
func targetOf(row *sqlstore.Webhook, r *rules) messaging.Target {
	t := messaging.Target{
		Source: messaging.SourceWebhook, Key: row.ID, OrganizationID: row.OrganizationID,
		State: messaging.TargetActive, MaxConcurrency: r.maxConcurrency,
		RatePerSecond: r.rate.perSecond, RateBurst: r.rate.burst, Retry: r.retry, Signature: r.signature,
		Serial: r.ordering == orderingWebhook,
	}
	switch {
	case !row.Active && row.DisabledReason != "":
		t.State, t.Reason = messaging.TargetHeld, row.DisabledReason
	case !row.Active:
		t.State, t.Reason = messaging.TargetHeld, "the webhook is inactive"
	case row.Paused:
		t.State, t.Reason = messaging.TargetHeld, "the webhook is paused"
	}
	return t
}

// sign gives a target the webhook's secret and credentials. A secret that was
// replaced stays valid for the overlap of a rotation, and ends at once when it
// was written over by hand.
func (d *door) sign(ctx context.Context, t *messaging.Target, current *messaging.Target, row *sqlstore.Webhook, authType string) error {
	var unreadable *unreadableError
	secret, auth, err := openSigning(ctx, d.vault, row, authType)
	switch {
	case errors.As(err, &unreadable):
		t.Unreadable = unreadable.Error()
		return nil
	case err != nil:
		return err
	}
	t.Secret, t.Auth = secret, auth
	if current == nil {
		return nil
	}
	if bytes.Equal(current.Secret, secret) {
		t.PreviousSecret, t.PreviousUntil = current.PreviousSecret, current.PreviousUntil
		return nil
	}
	if r, ok := ctx.Value(rotationKey{}).(rotation); ok && r.overlap > 0 && len(current.Secret) > 0 {
		now, err := d.store.Now(ctx)
		if err != nil {
			return err
		}
		t.PreviousSecret, t.PreviousUntil = current.Secret, now.Add(r.overlap)
	}
	return nil
}

// rowOf reads the columns that matter here from a record with references.
func rowOf(record data.Record) sqlstore.Webhook {
	text := func(column string) string {
		s, _ := record[column].(string)
		return s
	}
	flag := func(column string) bool {
		b, _ := record[column].(bool)
		return b
	}
	return sqlstore.Webhook{
		ID: text("id"), OrganizationID: text("organization_id"), Name: text(fieldName), URL: text(fieldURL),
		Active: flag(fieldActive), Paused: flag(fieldPaused), Definition: text(fieldDefinition),
		Secret: text(fieldSecret), Headers: text(fieldHeaders), Auth: text(fieldAuth),
		ManagedBy: text(fieldManagedBy), Customized: flag(fieldCustomized), DisabledReason: text(fieldDisabledReason),
	}
}
