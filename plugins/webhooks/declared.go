package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/plugins/webhooks/sqlstore"
	"github.com/objecthost/objecthost/services/data"
)

// declarations collects what plugins declare until the host starts.
type declarations struct {
	mu      sync.Mutex
	list    []declaration
	started bool
}

// Declare has webhooks written when the host starts, in the name of a plugin
// that calls it in its Init. Each is an authored webhook as JSON. They belong to
// no organization and are managed by their package: every start brings them in
// line with their declaration, unless an administrator has edited them or has a
// webhook of that name. A webhook that was declared once and no longer is stays
// until somebody deletes it. Declare returns an error once the plugin has
// started.
func (s *Service) Declare(plugin string, webhooks ...json.RawMessage) error {
	s.declared.mu.Lock()
	defer s.declared.mu.Unlock()
	if s.declared.started {
		return fmt.Errorf("webhooks: %s declares a webhook after the start", plugin)
	}
	for i, source := range webhooks {
		origin := fmt.Sprintf("%s webhook %d", plugin, i+1)
		s.declared.list = append(s.declared.list, declaration{origin, source})
	}
	return nil
}

// plant brings the declared webhooks into the database.
func (s *Service) plant(ctx context.Context, more []declaration) error {
	s.declared.mu.Lock()
	s.declared.started = true
	all := slices.Concat(s.declared.list, more)
	s.declared.mu.Unlock()
	ctx = identity.With(ctx, identity.System())
	seen := map[string]string{}
	for _, d := range all {
		parsed, name, err := d.parse()
		if err != nil {
			return err
		}
		if other, twice := seen[name]; twice {
			return &DeclarationError{d.origin, fmt.Sprintf("has the name %q, as has %s", name, other)}
		}
		seen[name] = d.origin
		if err := s.plantOne(ctx, d, parsed, name); err != nil {
			return err
		}
	}
	return nil
}

func (d declaration) parse() (*definition, string, error) {
	parsed, problems, headers := parseDefinition(d.source)
	if headers != nil {
		return nil, "", &DeclarationError{d.origin, headers.Error()}
	}
	if len(problems) > 0 {
		return nil, "", &DeclarationError{d.origin, (&refusal{problems}).Error()}
	}
	name, _ := parsed.columns[fieldName].(string)
	if name == "" {
		return nil, "", &DeclarationError{d.origin, "has no name"}
	}
	return parsed, name, nil
}

// plantOne creates or updates one declared webhook. Two nodes that start at
// once find each other's row: the loser looks again.
func (s *Service) plantOne(ctx context.Context, d declaration, parsed *definition, name string) error {
	for attempt := 1; ; attempt++ {
		row, err := s.store.Named(ctx, "", name)
		if err != nil {
			return err
		}
		if row == nil {
			values := parsed.record(nil)
			values[fieldManagedBy] = managedByPackage
			_, err = s.engine.Create(ctx, ObjectName, values)
		} else {
			err = s.update(ctx, d, parsed, row)
		}
		lost := data.IsCode(err, data.CodeUniqueViolation) || data.IsCode(err, data.CodeConcurrentUpdate) ||
			data.IsCode(err, data.CodeRecordNotFound)
		if lost && attempt < 5 {
			continue
		}
		var refused *data.Error
		if errors.As(err, &refused) {
			return &DeclarationError{d.origin, refused.Message}
		}
		return err
	}
}

func (s *Service) update(ctx context.Context, d declaration, parsed *definition, row *sqlstore.Webhook) error {
	if row.ManagedBy != managedByPackage || row.Customized {
		s.log.InfoContext(ctx, "declared webhook left alone: it is an administrator's or was edited",
			"webhook_id", row.ID, "webhook", row.Name, "origin", d.origin)
		return nil
	}
	values := parsed.record(row)
	same, err := s.planted(ctx, values, row)
	if err != nil || same {
		return err
	}
	_, err = s.engine.Update(ctx, ObjectName, row.ID, values, data.Match{})
	return err
}

// record is the whole row that a declaration asks for. What it leaves out gets
// its default, so that a later version of a package can take things back. A
// webhook that the host switched off stays off.
func (d *definition) record(row *sqlstore.Webhook) data.Record {
	values := data.Record{
		fieldLabel: nil, fieldObjectName: nil, fieldTriggers: []any{}, fieldMethod: "post", fieldDescription: nil, fieldActive: true,
		fieldSecret: d.secret.orNil(), fieldHeaders: d.headers.orNil(), fieldAuth: d.credentials.orNil(),
	}
	for column, value := range d.columns {
		values[column] = storable(value)
	}
	source := d.members
	if row != nil && !row.Active && row.DisabledReason != "" {
		values[fieldActive] = false
		if source.has("isActive") {
			source = source.set("isActive", json.RawMessage("false"))
		}
	}
	values[fieldDefinition] = string(source.appendJSON(nil))
	return values
}

func (s secretInput) orNil() any {
	if s.state == secretSet {
		return s.value
	}
	return nil
}

// planted reports whether a package's row is as its declaration asks. Columns
// and definition are written together, so that an equal definition means equal
// columns, but for those that the host may have written since.
func (s *Service) planted(ctx context.Context, values data.Record, row *sqlstore.Webhook) (bool, error) {
	if row.Definition != values[fieldDefinition] || row.Active != values[fieldActive] {
		return false, nil
	}
	for column, ref := range map[string]string{fieldSecret: row.Secret, fieldHeaders: row.Headers, fieldAuth: row.Auth} {
		stored, err := reveal(ctx, s.engine, column, ref)
		var unreadable *unreadableError
		switch {
		case errors.As(err, &unreadable):
			return false, nil // the declaration has it: write it anew
		case err != nil:
			return false, err
		}
		want, _ := values[column].(string)
		if string(stored) != want {
			return false, nil
		}
	}
	return true, nil
}

// sweep moves secrets that stand in clear in definitions, as earlier releases
// wrote them, into the secret columns.
func (s *Service) sweep(ctx context.Context) error {
	rows, err := s.store.Mentioning(ctx, `"secret"`, `"headers"`, `"credentials"`)
	if err != nil {
		return err
	}
	ctx = identity.With(ctx, identity.System())
	for i := range rows {
		parsed, problems, headers := parseDefinition([]byte(rows[i].Definition))
		if parsed == nil || !parsed.moved {
			continue
		}
		if len(problems) > 0 || headers != nil {
			s.log.WarnContext(ctx, "webhook's definition holds a secret in clear and cannot be cleaned: save it again",
				"webhook_id", rows[i].ID, "webhook", rows[i].Name)
			continue
		}
		values := data.Record{fieldDefinition: strings.Clone(rows[i].Definition)}
		if _, err := s.engine.Update(ctx, ObjectName, rows[i].ID, values, data.Match{}); err != nil {
			return fmt.Errorf("move the secrets of webhook %s: %w", rows[i].ID, err)
		}
		s.log.InfoContext(ctx, "webhook's secrets moved out of its definition", "webhook_id", rows[i].ID, "webhook", rows[i].Name)
	}
	return nil
}
