package data

// Filter selects records. The zero value selects all. Filters come from
// [ParseFilter] or are put together in Go by [Where], [And], [Or] and [Not];
// fields and values are checked against the object when a filter is used.
//
// A comparison with a null field is false, except that $ne, $nin,
// $notContains and $not, which negate, include such records; comparing with
// null by $eq or $ne asks whether the field is null.
type Filter struct{ node node }

// IsZero reports whether the filter selects everything by having no
// condition.
func (f Filter) IsZero() bool { return f.node == nil }

// Where compares a field by one of the operators of the wire protocol ($eq,
// $in, $contains, …). A value of type [FieldRef] compares with another field.
func Where(field, operator string, value any) Filter {
	return Filter{&comparison{field: field, op: operator, value: value}}
}

// Eq selects records whose field equals value; nil means null.
func Eq(field string, value any) Filter { return Where(field, "$eq", value) }

// In selects records whose field equals one of the values.
func In[T any](field string, values ...T) Filter {
	list := make([]any, len(values))
	for i, v := range values {
		list[i] = v
	}
	return Where(field, "$in", list)
}

// And selects what all filters select, everything for none.
func And(filters ...Filter) Filter { return join(false, filters) }

// Or selects what any of the filters selects, nothing for none.
func Or(filters ...Filter) Filter { return join(true, filters) }

// Not selects what f does not.
func Not(f Filter) Filter { return Filter{&negation{f.node}} }

// FieldRef as a value of [Where] stands for another field of the record.
type FieldRef string

// join drops parts that select everything from a conjunction. A disjunction
// keeps them: one such part makes the whole select everything.
func join(or bool, filters []Filter) Filter {
	l := &logic{or: or}
	for _, f := range filters {
		if f.node == nil && !or {
			continue
		}
		l.parts = append(l.parts, f.node)
	}
	if !or && len(l.parts) == 0 {
		return Filter{}
	}
	if len(l.parts) == 1 {
		return Filter{l.parts[0]}
	}
	return Filter{l}
}

// node is a *logic, *negation, *comparison, or nil for everything.
type node interface{}

type logic struct {
	or    bool
	parts []node
}

type negation struct{ part node }

type comparison struct {
	field, op string
	value     any
}

// operatorNames are the operators in the order in which errors list them.
var operatorOrder = []string{
	"$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$between", "$contains", "$notContains",
	"$startsWith", "$endsWith", "$icontains", "$like", "$ilike", "$null", "$exists",
}

var operatorNames = func() map[string]bool {
	names := map[string]bool{}
	for _, name := range operatorOrder {
		names[name] = true
	}
	return names
}()

// Limits of filters.
const (
	maxFilterBytes  = 256 << 10
	maxFilterDepth  = 32
	maxFilterValues = 10_000
	maxPattern      = 2_000 // characters of a $like pattern
)
