package data

import "github.com/objecthost/objecthost/core/object"

// Matches evaluates a filter in memory, for tests that compare it with the
// databases.
func Matches(schema *object.Schema, f Filter, record Record) (bool, error) {
	t := newTable(*schema, declaredOnly(schema))
	p, err := t.compile(f, "where", epoch)
	if err != nil {
		return false, err
	}
	return match(p, record), nil
}
