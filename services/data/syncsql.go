package data

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/storage"
)

var epoch = time.Unix(0, 0).UTC()

// actualTable is what the database has under an object's name.
type actualTable struct {
	exists  bool
	columns map[string]string // name to type, in lower case
	indexes []string
	kinds   map[string]string // recorded by earlier syncs
}

// lockSchema keeps other hosts from syncing until the transaction ends. On
// SQLite the writer's transaction is that lock.
func (e *Engine) lockSchema(ctx context.Context) error {
	if e.db.Dialect() != storage.Postgres {
		return nil
	}
	_, err := e.db.Write(ctx).ExecContext(ctx, "SELECT pg_advisory_xact_lock(hashtextextended('objecthost.data:' || current_schema(), 0))")
	if err != nil {
		return fmt.Errorf("lock the schema: %w", err)
	}
	return nil
}

// inspect reads columns, indexes and recorded kinds of the objects' tables.
func (e *Engine) inspect(ctx context.Context, schemas []object.Schema) (map[string]*actualTable, error) {
	found := make(map[string]*actualTable, len(schemas))
	for i := range schemas {
		found[schemas[i].Name] = &actualTable{columns: map[string]string{}, kinds: map[string]string{}}
	}
	columns := `SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = current_schema()`
	indexes := `SELECT tablename, indexname FROM pg_indexes WHERE schemaname = current_schema()`
	if e.db.Dialect() == storage.SQLite {
		columns = `SELECT m.name, c.name, c.type FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table'`
		indexes = `SELECT tbl_name, name FROM sqlite_master WHERE type = 'index'`
	}
	err := e.each(ctx, columns, 3, func(row []string) {
		if t := found[row[0]]; t != nil {
			t.exists = true
			t.columns[row[1]] = strings.ToLower(row[2])
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read the database's columns: %w", err)
	}
	err = e.each(ctx, indexes, 2, func(row []string) {
		if t := found[row[0]]; t != nil {
			t.indexes = append(t.indexes, row[1])
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read the database's indexes: %w", err)
	}
	err = e.each(ctx, `SELECT object_name, field_name, kind FROM sys_data_field`, 3, func(row []string) {
		if t := found[row[0]]; t != nil {
			t.kinds[row[1]] = row[2]
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read the recorded fields: %w", err)
	}
	return found, nil
}

// each runs a query whose columns are all texts.
func (e *Engine) each(ctx context.Context, query string, width int, row func([]string)) (err error) {
	rows, err := e.db.Read(ctx).QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { err = firstError(err, rows.Close()) }()
	values := make([]sql.NullString, width)
	targets := make([]any, width)
	for i := range values {
		targets[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		texts := make([]string, width)
		for i := range values {
			texts[i] = values[i].String
		}
		row(texts)
	}
	return rows.Err()
}

// firstError keeps the error that came first.
func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// columnSQL is a column's definition.
func (e *Engine) columnSQL(c *column) string {
	text := quote(c.Name) + " " + e.columnType(c.kind)
	if c.Name == "id" {
		text += " PRIMARY KEY NOT NULL"
	}
	return text
}

// columnType is the type of a kind's columns. Texts compare by their bytes on
// both dialects; SQLite keeps decimals as text under a collation of ours, since
// its own numbers would lose digits.
func (e *Engine) columnType(k kind) string {
	if e.db.Dialect() == storage.Postgres {
		switch k {
		case kindDecimal:
			return "NUMERIC"
		case kindBool:
			return "BOOLEAN"
		case kindInstant:
			return "BIGINT"
		default:
			return `TEXT COLLATE "C"`
		}
	}
	switch k {
	case kindDecimal:
		return "TEXT COLLATE decimal"
	case kindBool, kindInstant:
		return "INTEGER"
	default:
		return "TEXT"
	}
}

// fits reports whether a column of the given type can keep values of kind k.
func (e *Engine) fits(k kind, physical string) bool {
	isText := strings.HasPrefix(physical, "text") || strings.HasPrefix(physical, "character varying") || strings.HasPrefix(physical, "varchar")
	postgres := e.db.Dialect() == storage.Postgres
	switch k {
	case kindDecimal:
		return postgres && physical == "numeric" || !postgres && physical == "text"
	case kindBool:
		return postgres && physical == "boolean" || !postgres && (physical == "boolean" || isInteger(physical))
	case kindInstant:
		return isInteger(physical)
	default:
		return isText
	}
}

// isInteger knows the integer types of both dialects.
func isInteger(physical string) bool {
	return slices.Contains([]string{"bigint", "integer", "int", "smallint"}, physical)
}

// index is an index that the engine makes.
type index struct {
	name   string
	fields []string
	unique bool
	// scoped puts the organization first.
	scoped bool
}

// indexes lists the indexes of a definition: unique fields, marked fields,
// references (deletes look for who points at them), and the declared ones.
func (t *table) indexes() []index {
	var out []index
	add := func(name string, unique, scoped bool, fields ...string) {
		name = t.indexName(name, unique, scoped, fields)
		if !slices.ContainsFunc(out, func(i index) bool { return i.name == name }) {
			out = append(out, index{name: name, fields: fields, unique: unique, scoped: scoped})
		}
	}
	for i := range t.columns {
		c := &t.columns[i]
		switch {
		case c.System && c.Name != "organization_id":
		case c.Unique == object.UniqueGlobal:
			add("", true, false, c.Name)
		case c.Unique != object.NotUnique:
			add("", true, t.byName["organization_id"] != nil, c.Name)
		}
		if (c.Index || c.IsReference() && (!c.System || c.Name == "organization_id" || c.Name == "owner_id")) && c.sortableKind() {
			add("", false, false, c.Name)
		}
	}
	for _, declared := range t.schema.Indexes {
		scoped := declared.Unique == object.UniqueOrganization && t.byName["organization_id"] != nil
		add(declared.Name, declared.Unique != object.NotUnique, scoped, declared.Fields...)
	}
	return out
}

// sortableKind reports whether the column's values have an order that an index
// can follow.
func (c *column) sortableKind() bool {
	return c.kind != kindSealed && c.kind != kindList && c.kind != kindJSON
}

// indexName makes a name that says what the index is on. Both databases keep
// the names of all tables' indexes together, and PostgreSQL cuts them at 63
// bytes: the digest keeps those apart that would look alike.
func (t *table) indexName(declared string, unique, scoped bool, fields []string) string {
	prefix := "ix_"
	switch {
	case scoped:
		prefix = "uo_"
	case unique:
		prefix = "ux_"
	}
	readable := prefix + t.name() + "_" + strings.Join(fields, "_")
	if declared != "" {
		readable = prefix + t.name() + "_" + declared
	}
	exact := strings.Join(append([]string{prefix, t.name(), declared}, fields...), "\x00")
	if unique && t.trash {
		exact += "\x00live" // such an index leaves the trash out
	}
	return readable[:min(len(readable), 48)] + "_" + digest([]byte(exact))[:10]
}

// maxKeyBytes is what the texts of one index entry may have together:
// PostgreSQL takes no more than 2704 bytes, of which the organization and the
// id need some.
const maxKeyBytes = 2400

// boundKeys limits the texts that stand in indexes, so that both databases
// take the same values.
func (t *table) boundKeys() {
	for _, i := range t.indexes() {
		var texts []*column
		for _, name := range i.fields {
			if c := t.byName[name]; c != nil && c.kind == kindText {
				texts = append(texts, c)
			}
		}
		for _, c := range texts {
			if most := maxKeyBytes / len(texts); c.maxBytes == 0 || most < c.maxBytes {
				c.maxBytes = most
			}
		}
	}
}

// warnOfIndexes tells of unique indexes that an earlier definition asked for:
// they still refuse values, because a sync never drops anything.
func (e *Engine) warnOfIndexes(t *table, found []string) {
	for _, name := range found {
		if (strings.HasPrefix(name, "ux_") || strings.HasPrefix(name, "uo_")) && t.uniques[name] == nil {
			e.log.Warn("unique index is no longer declared but still in force, drop it by hand", "object", t.name(), "index", name)
		}
	}
}

// indexSQL writes an index. Nulls come first, and other than in unique ones
// the id comes last, so that a sort with its tie-breaker reads the index as it
// lies, in both directions. Records in the trash take part in no unique index.
func (e *Engine) indexSQL(t *table, i index) string {
	postgres := e.db.Dialect() == storage.Postgres
	var keys []string
	if i.scoped {
		keys = append(keys, "(COALESCE(organization_id, ''))")
	}
	for _, name := range i.fields {
		key := quote(name)
		if postgres && !i.unique {
			key += " NULLS FIRST"
		}
		keys = append(keys, key)
	}
	kind := "INDEX"
	if i.unique {
		kind = "UNIQUE INDEX"
	} else if !slices.Contains(i.fields, "id") {
		keys = append(keys, "id")
	}
	where := ""
	if i.unique && t.trash {
		where = " WHERE deleted_at IS NULL"
	}
	return fmt.Sprintf("CREATE %s %s ON %s (%s)%s", kind, quote(i.name), quote(t.name()), strings.Join(keys, ", "), where)
}
