package transfer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/objecthost/objecthost/storage"
)

// kind is how a column's values are compared.
type kind string

const (
	kindBool    kind = "bool"
	kindInt     kind = "int"
	kindFloat   kind = "float"
	kindDecimal kind = "decimal"
	kindText    kind = "text"
	kindBytes   kind = "bytes"
)

// column is a column as one database has it.
type column struct {
	name string
	// typ is the database's type, in lower case.
	typ  string
	kind kind // "" for a type that is not known
	// identity columns get their values from the database.
	identity bool
}

// table is a table as one database has it.
type table struct {
	name    string
	columns []column
	key     []string // the primary key's columns, in its order
	refs    []string // tables that foreign keys point at
}

func (t *table) column(name string) (column, bool) {
	for _, c := range t.columns {
		if c.name == name {
			return c, true
		}
	}
	return column{}, false
}

const (
	postgresColumns = `SELECT c.table_name, c.column_name, c.data_type, CASE WHEN c.is_identity = 'YES' THEN '1' ELSE '' END
		FROM information_schema.columns c JOIN information_schema.tables t ON t.table_schema = c.table_schema AND t.table_name = c.table_name
		WHERE c.table_schema = current_schema() AND t.table_type = 'BASE TABLE' ORDER BY c.table_name, c.ordinal_position`
	postgresKeys = `SELECT t.relname, a.attname FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid
		CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(attnum, n)
		JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.attnum
		WHERE i.indisprimary AND t.relnamespace = current_schema()::regnamespace ORDER BY t.relname, k.n`
	postgresRefs = `SELECT t.relname, f.relname FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid JOIN pg_class f ON f.oid = c.confrelid
		WHERE c.contype = 'f' AND c.connamespace = current_schema()::regnamespace`
	sqliteColumns = `SELECT m.name, c.name, c.type, '' FROM sqlite_master m, pragma_table_info(m.name) c
		WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY m.name, c.cid`
	sqliteKeys = `SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c
		WHERE m.type = 'table' AND c.pk > 0 ORDER BY m.name, c.pk`
	sqliteRefs = `SELECT m.name, f."table" FROM sqlite_master m, pragma_foreign_key_list(m.name) f WHERE m.type = 'table'`
)

// catalog reads the tables of a database, by name.
func catalog(ctx context.Context, db *storage.DB) (map[string]*table, error) {
	columns, keys, refs := sqliteColumns, sqliteKeys, sqliteRefs
	if db.Dialect() == storage.Postgres {
		columns, keys, refs = postgresColumns, postgresKeys, postgresRefs
	}
	tables := map[string]*table{}
	err := each(ctx, db, columns, 4, func(row []string) {
		t := tables[row[0]]
		if t == nil {
			t = &table{name: row[0]}
			tables[row[0]] = t
		}
		typ := strings.ToLower(row[2])
		t.columns = append(t.columns, column{name: row[1], typ: typ, kind: kindOf(typ), identity: row[3] != ""})
	})
	if err != nil {
		return nil, fmt.Errorf("read the columns: %w", err)
	}
	err = each(ctx, db, keys, 2, func(row []string) {
		if t := tables[row[0]]; t != nil {
			t.key = append(t.key, row[1])
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read the keys: %w", err)
	}
	err = each(ctx, db, refs, 2, func(row []string) {
		if t := tables[row[0]]; t != nil && row[1] != row[0] {
			t.refs = append(t.refs, row[1])
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read the foreign keys: %w", err)
	}
	return tables, nil
}

// each runs a query whose columns are all texts.
func each(ctx context.Context, db *storage.DB, query string, width int, row func([]string)) error {
	rows, err := db.Read(ctx).QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		texts := make([]string, width)
		to := make([]any, width)
		for i := range texts {
			to[i] = &texts[i]
		}
		if err := rows.Scan(to...); err != nil {
			return err
		}
		row(texts)
	}
	return rows.Err()
}

// kindOf knows the types that tables are made with, of both dialects.
func kindOf(typ string) kind {
	switch {
	case typ == "boolean":
		return kindBool
	case slices.Contains([]string{"bigint", "integer", "int", "smallint"}, typ):
		return kindInt
	case typ == "double precision", typ == "real":
		return kindFloat
	case typ == "numeric":
		return kindDecimal
	case strings.HasPrefix(typ, "text"), strings.HasPrefix(typ, "character varying"), strings.HasPrefix(typ, "varchar"):
		return kindText
	case typ == "bytea", typ == "blob":
		return kindBytes
	}
	return ""
}

// ordered returns the tables so that those which foreign keys point at come
// first, else by name.
func ordered(tables map[string]*table) []*table {
	var out []*table
	done := map[string]bool{}
	var visit func(t *table)
	visit = func(t *table) {
		if done[t.name] {
			return
		}
		done[t.name] = true // also ends a circle, which a single pass cannot serve
		for _, name := range t.refs {
			if target := tables[name]; target != nil {
				visit(target)
			}
		}
		out = append(out, t)
	}
	all := make([]*table, 0, len(tables))
	for _, t := range tables {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *table) int { return cmp.Compare(a.name, b.name) })
	for _, t := range all {
		visit(t)
	}
	return out
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func quoted(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = quote(n)
	}
	return strings.Join(out, ", ")
}
