package webhooks

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/objecthost/objecthost/core/event"
)

// The triggers as sys_webhook stores them.
const (
	triggerCreate     = "create"
	triggerUpdate     = "update"
	triggerDelete     = "delete"
	triggerUndelete   = "undelete"
	triggerBulkUpdate = "bulk_update"
	triggerBulkDelete = "bulk_delete"
)

// triggers that every webhook may have; undelete comes on top for objects that
// keep deleted records.
var commonTriggers = []string{triggerCreate, triggerUpdate, triggerDelete, triggerBulkUpdate, triggerBulkDelete}

// kind is what a webhook makes of one type of event.
type kind struct {
	trigger, action string
	// bulk events tell how many records matched instead of naming one.
	bulk bool
}

// kinds maps the event types that webhooks react to.
var kinds = map[string]kind{
	event.RecordCreated:   {triggerCreate, "created", false},
	event.RecordUpdated:   {triggerUpdate, "updated", false},
	event.RecordDeleted:   {triggerDelete, "deleted", false},
	event.RecordUndeleted: {triggerUndelete, "undeleted", false},
	event.RecordsUpdated:  {triggerBulkUpdate, "updated", true},
	event.RecordsDeleted:  {triggerBulkDelete, "deleted", true},
}

// parseTriggers reads a list of triggers: a list of texts, a text with commas,
// or a text that holds a JSON array. Letter case and blanks around a name do
// not matter, a name given twice counts once. What is no text comes back as
// its JSON, to be refused by name.
func parseTriggers(value any) []string {
	var names []string
	switch v := value.(type) {
	case nil:
		return nil
	case []string:
		names = v
	case []any:
		for _, one := range v {
			names = append(names, nameOf(one))
		}
	case string:
		names = splitTriggers(v)
	default:
		names = []string{nameOf(v)}
	}
	out := make([]string, 0, len(names))
	for _, name := range names {
		name = strings.ToLower(strings.TrimSpace(name))
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

func splitTriggers(text string) []string {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return nil
	case text[0] == '[':
		var list []any
		if decodeStrict([]byte(text), &list) != nil {
			return []string{text}
		}
		names := make([]string, 0, len(list))
		for _, one := range list {
			names = append(names, nameOf(one))
		}
		return names
	case text[0] == '"':
		var one string
		if json.Unmarshal([]byte(text), &one) == nil {
			return splitTriggers(one)
		}
	}
	return strings.Split(text, ",")
}

func nameOf(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, err := encode(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// checkTriggers refuses what is no trigger. undelete is one only for an object
// that keeps deleted records.
func checkTriggers(names []string, trash bool) *problem {
	allowed := commonTriggers
	if trash {
		allowed = slices.Insert(slices.Clone(commonTriggers), 3, triggerUndelete)
	}
	for _, name := range names {
		if slices.Contains(allowed, name) {
			continue
		}
		list := strings.Join(allowed, ", ")
		return &problem{
			field: fieldTriggers, code: codeInvalidOption,
			message:    fmt.Sprintf("Triggers: %q is not one of: %s", name, list),
			constraint: map[string]any{"allowed": list},
			value:      name, options: allowed,
		}
	}
	return nil
}

// sameSet reports whether two lists of triggers hold the same names.
func sameSet(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}
