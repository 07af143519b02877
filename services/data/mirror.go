package data

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/storage"
)

// Migrations are the migrations of the engine's own tables. New applies them.
func Migrations() storage.Migrations { return migrations() }

// Mirror makes the tables of objects in another database, with the columns
// that they have in the first one and without indexes, which [Engine.Define]
// adds. It needs no definitions: those may be gone while their tables are kept.
// Tables that are there already are left alone. Both databases have the
// engine's own tables.
func Mirror(ctx context.Context, from, to *storage.DB) error {
	source, target := &Engine{db: from}, &Engine{db: to}
	kinds := map[string]map[string]kind{}
	err := source.each(ctx, `SELECT object_name, field_name, kind FROM sys_data_field`, 3, func(row []string) {
		if kinds[row[0]] == nil {
			kinds[row[0]] = map[string]kind{}
		}
		kinds[row[0]][row[1]] = kind(row[2])
	})
	if err != nil {
		return fmt.Errorf("read the recorded fields: %w", err)
	}
	var schemas []object.Schema
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		schemas = append(schemas, object.Schema{Name: name})
	}
	have, err := source.inspect(ctx, schemas)
	if err != nil {
		return err
	}
	there, err := target.inspect(ctx, schemas)
	if err != nil {
		return err
	}
	return to.InTx(ctx, func(ctx context.Context) error {
		for _, s := range schemas {
			if !have[s.Name].exists || there[s.Name].exists {
				continue
			}
			var columns []string
			for _, name := range slices.Sorted(maps.Keys(have[s.Name].columns)) {
				k, known := kinds[s.Name][name]
				if !known {
					return fmt.Errorf("table %s has a column %s that no field stands for", s.Name, name)
				}
				columns = append(columns, target.columnSQL(&column{Field: &object.Field{Name: name}, kind: k}))
			}
			if _, err := to.Write(ctx).ExecContext(ctx, fmt.Sprintf("CREATE TABLE %s (%s)", quote(s.Name), strings.Join(columns, ", "))); err != nil {
				return fmt.Errorf("make table %s: %w", s.Name, err)
			}
		}
		return nil
	})
}
