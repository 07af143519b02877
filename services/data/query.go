package data

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/objecthost/objecthost/core/object"
)

// slots are the query parameters that mean the same thing.
var slots = map[string][]string{
	"where":   {"where", "filter", "filters", "$filter"},
	"fields":  {"fields", "select", "$select"},
	"orderBy": {"orderBy", "sort", "$orderby"},
	"limit":   {"limit", "top", "$top"},
	"offset":  {"offset", "skip", "$skip"},
	"expand":  {"expand", "populate", "$expand"},
	"count":   {"count", "$count"},
	"search":  {"search", "$search"}, "searchFields": {"searchFields"},
	"groupBy": {"groupBy"}, "aggregations": {"aggregations"}, "having": {"having"}, "trash": {"trash"},
	"cursor": {"cursor"},
}

var slotOf = func() map[string]string {
	out := map[string]string{}
	for slot, names := range slots {
		for _, name := range names {
			out[name] = slot
		}
	}
	return out
}()

// notQueries are parameters that other software habitually sends, with what
// takes their place.
var notQueries = map[string]string{
	"pageSize": "Did you mean the 'top' query parameter (OData spelling '$top')?",
	"page":     "Did you mean the 'skip' query parameter (OData spelling '$skip')?",
	"per_page": "Did you mean the 'top' query parameter (OData spelling '$top')?",
	"order":    "Did you mean the 'sort' query parameter (OData spelling '$orderby')?",
}

// ParseQueryParams folds the query parameters of a GET into a query: the
// spellings of one slot are one, and every other parameter is an equality
// filter on the field of its name. Errors are *[Error] with
// CodeInvalidRequest, CodeInvalidFilter, CodeInvalidSort, CodeInvalidField or
// CodeUnsupportedParam.
func ParseQueryParams(schema *object.Schema, params url.Values) (Query, error) {
	p := queryParser{table: newTable(*schema, declaredOnly(schema))}
	given, err := p.fold(params)
	if err != nil {
		return Query{}, err
	}
	var filters []Filter
	for _, name := range sortedKeys(params) {
		if slotOf[name] != "" {
			continue
		}
		f, err := p.equality(name, params[name])
		if err != nil {
			return Query{}, err
		}
		filters = append(filters, f)
	}
	for _, slot := range sortedKeys(given) {
		if err := p.param(slot, given[slot].name, given[slot].value); err != nil {
			return Query{}, err
		}
	}
	p.query.Where = And(append([]Filter{p.query.Where}, filters...)...)
	return p.query, nil
}

type queryParser struct {
	table *table
	query Query
}

type param struct{ name, value string }

// bad is an error about the query as a whole.
func (p *queryParser) bad(code, format string, args ...any) *Error {
	return &Error{Code: code, Object: p.table.name(), Message: fmt.Sprintf(format, args...)}
}

// fold picks one value per slot.
func (p *queryParser) fold(params url.Values) (map[string]param, error) {
	given := map[string]param{}
	for _, name := range sortedKeys(params) {
		slot := slotOf[name]
		if slot == "" {
			if strings.HasPrefix(name, "$") {
				return nil, p.bad(CodeUnsupportedParam, "Query parameter '%s' is not supported.", name)
			}
			continue
		}
		for _, value := range params[name] {
			before, twice := given[slot]
			switch {
			case !twice:
				given[slot] = param{name, value}
			case slot == "where":
				return nil, p.bad(CodeInvalidFilter, "Query parameter '%s' was given more than once. Combine the filters in one with [\"and\", ...].", name)
			case before.value != value:
				return nil, p.bad(CodeInvalidRequest, "Query parameters '%s' and '%s' mean the same and were given different values.", before.name, name)
			}
		}
	}
	return given, nil
}

// equality reads a parameter that is not reserved as a filter on the field of
// its name.
func (p *queryParser) equality(name string, values []string) (Filter, error) {
	if _, ok := p.table.visible(name); !ok {
		message := fmt.Sprintf("Unknown field '%s' on object '%s'. Query parameters that are not reserved are read as field filters, so an unknown name can only match zero records.", name, p.table.name())
		if hint := notQueries[name]; hint != "" {
			message += " " + hint
		}
		return Filter{}, &Error{Code: CodeInvalidField, Object: p.table.name(), Field: name, Message: message}
	}
	if len(values) != 1 {
		return Filter{}, p.bad(CodeInvalidFilter, "Query parameter '%s' was given more than once.", name)
	}
	f := Eq(name, values[0])
	_, err := p.table.compile(f, name, time.Unix(0, 0))
	return f, err
}

// param reads one slot of a GET. Field names are checked here, so that a fault
// is told with the spelling that the caller used.
func (p *queryParser) param(slot, name, value string) (err error) {
	q := &p.query
	switch slot {
	case "where":
		q.Where, err = parseFilter(p.table, json.RawMessage(value), name)
	case "having":
		q.Having, err = p.having([]byte(value))
	case "fields":
		q.Fields = splitNames(value)
		err = p.table.checkSelect(q.Fields)
	case "expand":
		q.Expand, err = p.expand(splitNames(value))
	case "orderBy":
		q.OrderBy, err = p.sortText(value)
	case "limit":
		n := 0
		n, err = p.whole(name, value)
		q.Limit = &n
	case "offset":
		q.Offset, err = p.whole(name, value)
	case "count", "trash":
		flag, parseErr := strconv.ParseBool(value)
		if parseErr != nil {
			return p.bad(CodeInvalidRequest, "Query parameter '%s' must be true or false.", name)
		}
		if slot == "count" {
			q.NoCount = !flag
		} else {
			q.Trash = flag
		}
	case "search":
		q.Search = value
	case "cursor":
		q.Cursor = cmp.Or(value, cursorStart)
	case "searchFields":
		q.SearchFields = splitNames(value)
	case "groupBy":
		q.GroupBy = splitNames(value)
	case "aggregations":
		q.Aggregations, err = p.aggregations([]byte(value))
	}
	return err
}

// splitNames splits at commas and drops what is empty.
func splitNames(text string) []string {
	names := strings.Split(text, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	return slices.DeleteFunc(names, func(s string) bool { return s == "" })
}

// whole reads a count.
func (p *queryParser) whole(name, text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, p.bad(CodeInvalidRequest, "Query parameter '%s' must be a whole number of 0 or more.", name)
	}
	return n, nil
}

// expand checks that names are references.
func (p *queryParser) expand(names []string) ([]string, error) {
	for _, name := range names {
		if c, ok := p.table.visible(name); !ok || !c.IsReference() {
			return nil, &Error{Code: CodeInvalidField, Object: p.table.name(), Field: name, Message: fmt.Sprintf("Field '%s' on object '%s' is not a reference that can be expanded", name, p.table.name())}
		}
	}
	return names, nil
}

// sortText reads "name", "-name", "name desc", lists of them with commas, and
// the JSON of a POST's orderBy.
func (p *queryParser) sortText(text string) ([]Sort, error) {
	if trimmed := strings.TrimSpace(text); strings.HasPrefix(trimmed, "[") {
		value, err := DecodeJSON([]byte(trimmed))
		if err != nil {
			return nil, p.bad(CodeInvalidSort, "Query parameter 'sort' is not valid JSON.")
		}
		return p.orderBy(value)
	}
	var sorts []Sort
	for _, part := range splitNames(text) {
		words := strings.Fields(part)
		s := Sort{Field: words[0]}
		if name, minus := strings.CutPrefix(s.Field, "-"); minus {
			s.Field, s.Desc = name, true
		}
		switch {
		case len(words) == 1:
		case len(words) == 2 && strings.EqualFold(words[1], "desc"):
			s.Desc = true
		case len(words) == 2 && strings.EqualFold(words[1], "asc"):
		default:
			return nil, p.bad(CodeInvalidSort, "Query parameter 'sort' holds '%s'; write 'field', '-field' or 'field desc'.", part)
		}
		sorts = append(sorts, s)
	}
	if p.grouped() {
		return sorts, nil
	}
	_, err := p.table.order(sorts)
	return sorts, err
}

// grouped reports whether sort keys may also be aliases; Find checks them.
func (p *queryParser) grouped() bool { return len(p.query.GroupBy)+len(p.query.Aggregations) > 0 }

// orderBy reads [{"field": …, "order": "asc"|"desc"}].
func (p *queryParser) orderBy(value any) ([]Sort, error) {
	list, ok := value.([]any)
	if !ok {
		return nil, p.bad(CodeValidationFailed, "orderBy must be an array of {field, order}")
	}
	sorts := make([]Sort, 0, len(list))
	for i, item := range list {
		m, ok := item.(map[string]any)
		if !ok {
			return nil, p.bad(CodeValidationFailed, "orderBy[%d] must be an object {field, order}", i)
		}
		s := Sort{}
		for _, key := range sortedKeys(m) {
			text, isText := m[key].(string)
			switch {
			case key == "field" && isText:
				s.Field = text
			case key == "order" && (text == "asc" || text == "desc"):
				s.Desc = text == "desc"
			default:
				return nil, p.bad(CodeValidationFailed, "orderBy[%d].%s is not allowed: an entry is {field, order: \"asc\" or \"desc\"}", i, key)
			}
		}
		if s.Field == "" {
			return nil, p.bad(CodeValidationFailed, "orderBy[%d].field is required", i)
		}
		sorts = append(sorts, s)
	}
	if p.grouped() {
		return sorts, nil
	}
	_, err := p.table.order(sorts)
	return sorts, err
}

// ParseQueryBody reads the strict JSON form of a query, the body of a POST.
// Unknown keys are refused. Errors are those of [ParseQueryParams], and
// CodeValidationFailed for a wrong shape.
func ParseQueryBody(schema *object.Schema, body []byte) (Query, error) {
	p := queryParser{table: newTable(*schema, declaredOnly(schema))}
	value, err := DecodeJSON(body)
	if err != nil {
		return Query{}, err
	}
	m, ok := value.(map[string]any)
	if !ok {
		return Query{}, p.bad(CodeInvalidRequest, "A query is a JSON object.")
	}
	keys := sortedKeys(m)
	// Groups come first: they widen what a sort may name.
	slices.SortStableFunc(keys, func(a, b string) int { return groupFirst(a) - groupFirst(b) })
	for _, key := range keys {
		if err := p.bodyKey(key, m[key]); err != nil {
			return Query{}, err
		}
	}
	return p.query, nil
}

// groupFirst orders groupBy and aggregations before the other keys.
func groupFirst(key string) int {
	if key == "groupBy" || key == "aggregations" {
		return 0
	}
	return 1
}

// bodyKey reads one key of a POST.
func (p *queryParser) bodyKey(key string, value any) (err error) {
	q := &p.query
	switch key {
	case "object":
		if value != p.table.name() {
			return p.bad(CodeInvalidRequest, "The body's object must be '%s', as in the path.", p.table.name())
		}
	case "where", "having":
		raw, encodeErr := encodeJSON(value)
		if encodeErr != nil {
			return encodeErr
		}
		if key == "having" {
			q.Having, err = p.having(raw)
		} else {
			q.Where, err = parseFilter(p.table, raw, key)
		}
	case "fields":
		if q.Fields, err = p.names(key, value); err == nil {
			err = p.table.checkSelect(q.Fields)
		}
	case "searchFields":
		q.SearchFields, err = p.names(key, value)
	case "groupBy":
		q.GroupBy, err = p.names(key, value)
	case "orderBy":
		q.OrderBy, err = p.orderBy(value)
	case "limit":
		n := 0
		n, err = p.wholeNumber(key, value)
		q.Limit = &n
	case "offset":
		q.Offset, err = p.wholeNumber(key, value)
	case "expand":
		err = p.bodyExpand(value)
	case "aggregations":
		raw, encodeErr := encodeJSON(value)
		if encodeErr != nil {
			return encodeErr
		}
		q.Aggregations, err = p.aggregations(raw)
	default:
		err = p.bodyFlag(key, value)
	}
	return err
}

// bodyFlag reads the keys with simple values and refuses unknown ones: a
// misspelled where must not return everything.
func (p *queryParser) bodyFlag(key string, value any) error {
	q := &p.query
	flag, isFlag := value.(bool)
	text, isText := value.(string)
	switch {
	case key == "search" && isText:
		q.Search = text
	case key == "cursor" && isText:
		q.Cursor = cmp.Or(text, cursorStart)
	case key == "count" && isFlag:
		q.NoCount = !flag
	case key == "trash" && isFlag:
		q.Trash = flag
	case key == "search", key == "cursor", key == "count", key == "trash":
		return p.bad(CodeValidationFailed, "%s cannot be %s", key, describe(value))
	default:
		return p.bad(CodeValidationFailed, "'%s' is not a key of a query. Known keys: where, fields, orderBy, limit, offset, cursor, expand, search, searchFields, groupBy, aggregations, having, count, trash, object.", key)
	}
	return nil
}

// bodyExpand reads {"relation": {}}.
func (p *queryParser) bodyExpand(value any) (err error) {
	m, ok := value.(map[string]any)
	if !ok {
		return p.bad(CodeValidationFailed, "expand must be an object {relation: {}}")
	}
	for _, name := range sortedKeys(m) {
		if inner, ok := m[name].(map[string]any); !ok || len(inner) > 0 {
			return p.bad(CodeValidationFailed, "expand.%s must be {}: an expansion takes no query of its own", name)
		}
	}
	p.query.Expand, err = p.expand(sortedKeys(m))
	return err
}

// names reads an array of field names.
func (p *queryParser) names(key string, value any) ([]string, error) {
	list, ok := value.([]any)
	if !ok {
		return nil, p.bad(CodeValidationFailed, "%s must be an array of field names", key)
	}
	names := make([]string, len(list))
	for i, item := range list {
		if names[i], ok = item.(string); !ok {
			return nil, p.bad(CodeValidationFailed, "%s[%d] must be a field name", key, i)
		}
	}
	return names, nil
}

// wholeNumber reads a count from JSON.
func (p *queryParser) wholeNumber(key string, value any) (int, error) {
	n, ok := value.(json.Number)
	i, err := strconv.Atoi(n.String())
	if !ok || err != nil || i < 0 {
		return 0, p.bad(CodeValidationFailed, "%s must be a whole number of 0 or more", key)
	}
	return i, nil
}
