package data

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/storage"
)

//go:embed migrations
var migrationFiles embed.FS

// migrations are the engine's own tables.
func migrations() storage.Migrations {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return storage.Migrations{Name: "data", FS: files}
}

// Define adds definitions, or replaces those of the same names, and brings
// their tables up to date: it creates tables, adds columns and indexes, and
// never drops or changes any (a unique index that is no longer declared stays
// in force, which the log tells). A table that its owner migrates (External) is
// only looked at. Several hosts may define the same objects at once.
//
// Definitions that are wrong, that point at unknown objects, or that change
// how a field's values are kept are refused, all of them together, with an
// *[Error] of CodeInvalidDefinition; then nothing is changed.
func (e *Engine) Define(ctx context.Context, schemas ...object.Schema) error {
	tables, err := e.prepare(ctx, schemas)
	if err != nil {
		return err
	}
	e.register(tables)
	return nil
}

// prepare brings the tables up to date without making them known.
func (e *Engine) prepare(ctx context.Context, schemas []object.Schema) ([]*table, error) {
	if err := e.checkDefinitions(schemas); err != nil {
		return nil, err
	}
	tables := make([]*table, len(schemas))
	plans, err := e.plan(ctx, schemas, tables)
	if err != nil {
		return nil, err
	}
	if len(plans) > 0 {
		err := e.db.InTx(ctx, func(ctx context.Context) error {
			if err := e.lockSchema(ctx); err != nil {
				return err
			}
			// Another host may have done it meanwhile.
			plans, err := e.plan(ctx, schemas, tables)
			if err != nil {
				return err
			}
			return e.apply(ctx, plans)
		})
		if err != nil {
			return nil, err
		}
	}
	return tables, nil
}

// checkDefinitions finds what is wrong before the database is touched. Objects
// of the host (sys_) may be missing: a host without users has no sys_user.
func (e *Engine) checkDefinitions(schemas []object.Schema) error {
	var problems []error
	names := map[string]bool{}
	for i := range schemas {
		s := &schemas[i]
		if names[s.Name] {
			problems = append(problems, fmt.Errorf("object %q is defined twice", s.Name))
		}
		names[s.Name] = true
		if err := s.Check(); err != nil {
			problems = append(problems, err)
			continue
		}
		if slices.Contains(ownTables, s.Name) {
			problems = append(problems, fmt.Errorf("object %q: the name belongs to a table of the data engine", s.Name))
		}
		problems = append(problems, checkDefaults(s)...)
	}
	for i := range schemas {
		for j := range schemas[i].Fields {
			f := &schemas[i].Fields[j]
			target := f.Target()
			if target == "" || names[target] || strings.HasPrefix(target, "sys_") {
				continue
			}
			if _, err := e.table(target); err != nil {
				problems = append(problems, fmt.Errorf("object %q: fields.%s.reference: object %q is not defined", schemas[i].Name, f.Name, target))
			}
		}
	}
	if len(problems) == 0 {
		return nil
	}
	err := errors.Join(problems...)
	return &Error{Code: CodeInvalidDefinition, Object: schemas[0].Name, Message: strings.ReplaceAll(err.Error(), "\n", "; "), cause: err}
}

// ownTables are the engine's own tables.
var ownTables = []string{"sys_data_field", "sys_data_counter", "sys_data_object", "sys_secret"}

// checkDefaults refuses defaults that no record could hold.
func checkDefaults(s *object.Schema) []error {
	var problems []error
	for i := range s.Fields {
		f := &s.Fields[i]
		value := fieldDefault(f)
		if value == nil {
			continue
		}
		c := &column{Field: f, kind: kindOf(f)}
		if _, failed := normalize(c, value, epoch); failed != nil {
			problems = append(problems, fmt.Errorf("object %q: fields.%s.defaultValue: %s", s.Name, f.Name, failed.Message))
		}
	}
	return problems
}

// register makes the tables known.
func (e *Engine) register(tables []*table) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.registerLocked(tables)
}

// registerLocked works out anew who points at whom, for a caller that holds mu.
func (e *Engine) registerLocked(tables []*table) {
	for _, t := range tables {
		e.tables[t.name()] = t
	}
	e.parents = map[string][]reference{}
	for _, t := range e.tables {
		if t.schema.External {
			continue
		}
		for _, c := range t.references {
			e.parents[c.Target()] = append(e.parents[c.Target()], reference{t, c})
		}
	}
	for _, refs := range e.parents {
		slices.SortFunc(refs, func(a, b reference) int {
			return strings.Compare(a.table.name()+"."+a.column.Name, b.table.name()+"."+b.column.Name)
		})
	}
}

// plan lists the statements that one object still needs.
type plan struct {
	table      *table
	statements []string
	kinds      map[string]kind // to be recorded
}

// plan compares the definitions with the database and makes the tables ready.
func (e *Engine) plan(ctx context.Context, schemas []object.Schema, tables []*table) ([]plan, error) {
	actual, err := e.inspect(ctx, schemas)
	if err != nil {
		return nil, err
	}
	var plans []plan
	var problems []error
	for i := range schemas {
		found := actual[schemas[i].Name]
		t, p, err := e.planOne(schemas[i], found)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		tables[i] = t
		if len(p.statements)+len(p.kinds) > 0 {
			plans = append(plans, p)
		}
	}
	if len(problems) > 0 {
		err := errors.Join(problems...)
		return nil, &Error{Code: CodeInvalidDefinition, Message: strings.ReplaceAll(err.Error(), "\n", "; "), Object: schemas[0].Name, cause: err}
	}
	return plans, nil
}

// planOne compares one definition with its table. What a field kept before is
// known from sys_data_field: two kinds may share a column type, and a text that
// became a secret would show its plaintext as a reference.
func (e *Engine) planOne(s object.Schema, found *actualTable) (*table, plan, error) {
	if s.External {
		t, err := e.external(s, found)
		return t, plan{}, err
	}
	t := newTable(s, nil)
	p := plan{table: t, kinds: map[string]kind{}}
	var problems []error
	var definitions []string
	for i := range t.columns {
		c := &t.columns[i]
		recorded, known := found.kinds[c.Name]
		physical, exists := found.columns[c.Name]
		switch {
		case exists && known && recorded != string(c.kind):
			problems = append(problems, fmt.Errorf("object %q: field %q keeps %s values and cannot become %s (type %s): define a new field instead",
				s.Name, c.Name, recorded, string(c.kind), c.Type))
		case exists && !e.fits(c.kind, physical):
			problems = append(problems, fmt.Errorf("object %q: field %q of type %s does not fit its column of type %s", s.Name, c.Name, c.Type, physical))
		case !exists && found.exists:
			p.statements = append(p.statements, fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s", quote(s.Name), e.columnSQL(c)))
		case !exists:
			definitions = append(definitions, e.columnSQL(c))
		}
		if !known {
			p.kinds[c.Name] = c.kind
		}
	}
	if len(definitions) > 0 {
		p.statements = append([]string{fmt.Sprintf("CREATE TABLE %s (%s)", quote(s.Name), strings.Join(definitions, ", "))}, p.statements...)
	}
	for _, index := range t.indexes() {
		if !slices.Contains(found.indexes, index.name) {
			p.statements = append(p.statements, e.indexSQL(t, index))
		}
	}
	e.warnOfIndexes(t, found.indexes)
	return t, p, errors.Join(problems...)
}

// apply runs the statements inside the lock's transaction.
func (e *Engine) apply(ctx context.Context, plans []plan) error {
	for _, p := range plans {
		for _, statement := range p.statements {
			if _, err := e.db.Write(ctx).ExecContext(ctx, statement); err != nil {
				if _, duplicate := storage.IsUniqueViolation(err); duplicate {
					return &Error{Code: CodeInvalidDefinition, Object: p.table.name(), Message: fmt.Sprintf("object %q: records already hold values twice that are to be unique", p.table.name()), cause: err}
				}
				return fmt.Errorf("sync object %q: %w", p.table.name(), err)
			}
		}
		if len(p.kinds) == 0 {
			continue
		}
		b := e.builder()
		b.text("INSERT INTO sys_data_field (object_name, field_name, kind) VALUES ")
		for i, name := range sortedKeys(p.kinds) {
			if i > 0 {
				b.text(", ")
			}
			b.text("(")
			b.arg(kindText, p.table.name())
			b.text(", ")
			b.arg(kindText, name)
			b.text(", ")
			b.arg(kindText, string(p.kinds[name]))
			b.text(")")
		}
		b.text(" ON CONFLICT (object_name, field_name) DO NOTHING")
		if _, err := e.db.Write(ctx).ExecContext(ctx, b.String(), b.args...); err != nil {
			return fmt.Errorf("record the fields of object %q: %w", p.table.name(), err)
		}
	}
	return nil
}

// external verifies a table that its owner migrates.
func (e *Engine) external(s object.Schema, found *actualTable) (*table, error) {
	if !found.exists {
		return nil, fmt.Errorf("object %q: its table does not exist; the owner has to migrate it first", s.Name)
	}
	t := newTable(s, func(name string) bool { return found.columns[name] != "" })
	var problems []error
	for i := range t.columns {
		c := &t.columns[i]
		physical := found.columns[c.Name]
		switch {
		case physical == "":
			problems = append(problems, fmt.Errorf("object %q: the table has no column %q", s.Name, c.Name))
		case c.kind == kindDecimal && isInteger(physical):
			c.integer = true
		case !e.fits(c.kind, physical):
			problems = append(problems, fmt.Errorf("object %q: field %q of type %s does not fit its column of type %s", s.Name, c.Name, c.Type, physical))
		}
	}
	if t.byName["id"] == nil {
		problems = append(problems, fmt.Errorf("object %q: the table has no column \"id\"", s.Name))
	}
	return t, errors.Join(problems...)
}
