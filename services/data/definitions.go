package data

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
)

// PermissionManageMetadata is the permission to save definitions of objects.
const PermissionManageMetadata = "metadata.manage"

// Saved tells of a definition that was saved.
type Saved struct {
	// Version counts the definition's changes, from 1.
	Version int64
	// Created tells that there was none before.
	Created bool
}

// SaveDefinition defines an object, as [Engine.Define] does, and keeps the
// definition in the database, from where every host takes it: those that run
// when they hear of the event of type metadata.object.created or
// metadata.object.updated, others at their start. A change is additive: fields
// and indexes may come; a field that is left out keeps its column and is no
// longer served. Descriptions of the columns that every object has may stand
// among the fields and change nothing.
//
// ifMatch is the version that the caller knows, "" for any. Errors are *[Error]
// with CodeInvalidDefinition; CodeConflict for an object that files or plugins
// define, or that is the host's own; CodeConcurrentUpdate for a stale version;
// and those of callers without [PermissionManageMetadata].
func (e *Engine) SaveDefinition(ctx context.Context, s object.Schema, ifMatch string) (Saved, error) {
	if err := e.mayDefine(ctx); err != nil {
		return Saved{}, err
	}
	if err := e.definable(s); err != nil {
		return Saved{}, err
	}
	s.Fields = slices.DeleteFunc(slices.Clone(s.Fields), func(f object.Field) bool { return f.System && object.SystemField(f.Name) })
	schemas := []object.Schema{s}
	if err := e.checkDefinitions(schemas); err != nil {
		return Saved{}, err
	}
	text, err := encodeJSON(s)
	if err != nil {
		return Saved{}, fmt.Errorf("encode object %q: %w", s.Name, err)
	}
	var saved Saved
	tables := make([]*table, 1)
	err = e.db.InTx(ctx, func(ctx context.Context) error {
		if err := e.lockSchema(ctx); err != nil {
			return err
		}
		before, err := e.storedVersion(ctx, s.Name)
		if err != nil {
			return err
		}
		if current := strconv.FormatInt(before, 10); ifMatch != "" && ifMatch != current {
			return &Error{
				Code: CodeConcurrentUpdate, Object: s.Name, CurrentVersion: current,
				Message: fmt.Sprintf("The definition of '%s' was changed meanwhile (current version %s, expected %s)", s.Name, current, ifMatch),
			}
		}
		plans, err := e.plan(ctx, schemas, tables)
		if err != nil {
			return err
		}
		if err := e.apply(ctx, plans); err != nil {
			return err
		}
		saved = Saved{Version: before + 1, Created: before == 0}
		if err := e.auditDefinition(ctx, s.Name, saved); err != nil {
			return err
		}
		return e.storeDefinition(ctx, s, string(text), saved)
	})
	if err != nil {
		return Saved{}, err
	}
	e.adopt(map[string]int64{s.Name: saved.Version}, tables)
	return saved, nil
}

// mayDefine asks for the permission.
func (e *Engine) mayDefine(ctx context.Context) error {
	p := identity.From(ctx)
	switch {
	case p.System:
		return nil
	case e.authorizer != nil:
		if err := e.authorizer.Has(ctx, PermissionManageMetadata); err != nil {
			return denied("", err)
		}
		return nil
	case !p.Authenticated():
		return denied("", identity.ErrUnauthenticated)
	default:
		return denied("", &identity.DeniedError{Permission: PermissionManageMetadata})
	}
}

// definable refuses what does not belong to the database: what code defines
// would come back at the next start.
func (e *Engine) definable(s object.Schema) error {
	conflict := func(reason string) error {
		return &Error{Code: CodeConflict, Object: s.Name, Message: fmt.Sprintf("Object '%s' %s", s.Name, reason)}
	}
	e.mu.RLock()
	_, exists := e.tables[s.Name]
	_, stored := e.stored[s.Name]
	e.mu.RUnlock()
	switch {
	case strings.HasPrefix(s.Name, "sys_"):
		return conflict("would be the host's own; names under sys_ cannot be defined through the API")
	case exists && !stored:
		return conflict("is defined by the host's files or by a plugin; change it there")
	case s.External:
		return conflict("cannot be external: tables that others migrate are declared by the host's files or plugins")
	}
	return nil
}

func (e *Engine) storedVersion(ctx context.Context, name string) (version int64, err error) {
	b := e.builder()
	b.text("SELECT version FROM sys_data_object WHERE name = ")
	b.arg(kindText, name)
	err = e.db.Read(ctx).QueryRowContext(ctx, b.String(), b.args...).Scan(&version)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("read the definition of %s: %w", name, err)
	}
	return version, nil
}

// storeDefinition writes the row and the event that tells other hosts of it.
func (e *Engine) storeDefinition(ctx context.Context, s object.Schema, text string, saved Saved) error {
	now, user := e.now(), userOf(ctx)
	b := e.builder()
	b.text("INSERT INTO sys_data_object (name, definition, version, updated_at, updated_by) VALUES (")
	b.arg(kindText, s.Name)
	b.text(", ")
	b.arg(kindText, text)
	b.text(", ")
	b.arg(kindInstant, saved.Version)
	b.text(", ")
	b.arg(kindInstant, now.UnixMilli())
	b.text(", ")
	b.arg(kindText, user)
	b.text(") ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, version = excluded.version, updated_at = excluded.updated_at, updated_by = excluded.updated_by")
	if _, err := e.db.Write(ctx).ExecContext(ctx, b.String(), b.args...); err != nil {
		return fmt.Errorf("store the definition of %s: %w", s.Name, err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make an event id: %w", err)
	}
	kind := event.ObjectUpdated
	if saved.Created {
		kind = event.ObjectCreated
	}
	p := identity.From(ctx)
	return e.events.Append(ctx, &event.Event{
		ID: id.String(), Type: kind, Object: s.Name, UserID: p.UserID, OrganizationID: p.OrganizationID, Timestamp: now,
	})
}

// adopt registers tables of stored definitions, unless newer ones are known.
func (e *Engine) adopt(versions map[string]int64, tables []*table) {
	e.mu.Lock()
	defer e.mu.Unlock()
	newer := slices.DeleteFunc(slices.Clone(tables), func(t *table) bool {
		return e.stored[t.name()] >= versions[t.name()]
	})
	for _, t := range newer {
		e.stored[t.name()] = versions[t.name()]
	}
	e.registerLocked(newer)
}

// storedDefinition is one row of sys_data_object.
type storedDefinition struct {
	schema  object.Schema
	version int64
}

// LoadDefinitions defines what [Engine.SaveDefinition] has stored, here or on
// another host, and this engine does not know yet. A definition that cannot
// be used here (files or plugins define the name too, or what it points at is
// gone) is left out, which the log tells.
func (e *Engine) LoadDefinitions(ctx context.Context) error {
	found, err := e.readDefinitions(ctx)
	if err != nil || len(found) == 0 {
		return err
	}
	if e.defineStored(ctx, found) == nil {
		return nil
	}
	// Something is wrong with one of them. They may refer to each other, so
	// rounds go on as long as one of them can be had.
	for progress := true; progress && len(found) > 0; {
		progress = false
		found = slices.DeleteFunc(found, func(d storedDefinition) bool {
			err := e.defineStored(ctx, []storedDefinition{d})
			progress = progress || err == nil
			return err == nil
		})
	}
	for _, d := range found {
		err := e.defineStored(ctx, []storedDefinition{d})
		if err != nil {
			e.log.Warn("a stored definition cannot be used", "object", d.schema.Name, "version", d.version, "error", err)
		}
	}
	return ctx.Err()
}

// readDefinitions reads the rows that are news.
func (e *Engine) readDefinitions(ctx context.Context) ([]storedDefinition, error) {
	e.mu.RLock()
	known := maps.Clone(e.stored)
	defined := map[string]bool{}
	for name := range e.tables {
		defined[name] = true
	}
	e.mu.RUnlock()
	var found []storedDefinition
	err := e.each(ctx, "SELECT name, version, definition FROM sys_data_object ORDER BY name", 3, func(row []string) {
		version, _ := strconv.ParseInt(row[1], 10, 64)
		_, stored := known[row[0]]
		switch {
		case known[row[0]] >= version:
			return
		case defined[row[0]] && !stored:
			e.log.Warn("a stored definition is left out, the host's files or a plugin define the object too", "object", row[0])
			return
		}
		var s object.Schema
		if err := json.Unmarshal([]byte(row[2]), &s); err != nil {
			e.log.Warn("a stored definition cannot be read", "object", row[0], "error", err)
			return
		}
		found = append(found, storedDefinition{s, version})
	})
	if err != nil {
		return nil, fmt.Errorf("read the stored definitions: %w", err)
	}
	return found, nil
}

// defineStored makes tables of stored definitions ready. They were applied when
// they were stored, so there is nothing to do in the database, unless it was
// restored from a copy that lacks them.
func (e *Engine) defineStored(ctx context.Context, list []storedDefinition) error {
	schemas, versions := make([]object.Schema, len(list)), map[string]int64{}
	for i, d := range list {
		schemas[i], versions[d.schema.Name] = d.schema, d.version
	}
	tables, err := e.prepare(ctx, schemas)
	if err != nil {
		return err
	}
	e.adopt(versions, tables)
	return nil
}

// Stored reports whether an object's definition came through
// [Engine.SaveDefinition], and its version.
func (e *Engine) Stored(name string) (version int64, ok bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	version, ok = e.stored[name]
	return version, ok
}
