package rest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// members reads the members of a request's JSON object. It keeps the first
// thing that is wrong, so that callers read all members and ask once.
type members struct {
	object map[string]any
	where  string // how messages name the object: "" for the body itself
	err    *error
}

func membersOf(object map[string]any) members {
	var err error
	return members{object: object, err: &err}
}

// refuse notes what is wrong with a member.
func (m members) refuse(name, reason string) {
	if *m.err == nil {
		*m.err = invalidRequest(fmt.Sprintf("'%s' %s.", m.where+name, reason))
	}
}

// only refuses members other than the given ones: a misspelled option must not
// be taken for an absent one.
func (m members) only(names ...string) {
	for _, name := range slices.Sorted(maps.Keys(m.object)) {
		if !slices.Contains(names, name) {
			m.refuse(clip(name), "is not known; known are "+strings.Join(names, ", "))
			return
		}
	}
}

// member reads one member of a type; null counts as absent.
func member[T any](m members, name, kind string) (value T, given bool) {
	raw := m.object[name]
	if raw == nil {
		return value, false
	}
	value, ok := raw.(T)
	if !ok {
		m.refuse(name, "must be "+kind)
	}
	return value, ok
}

func (m members) text(name string) string {
	value, _ := member[string](m, name, "text")
	return value
}

func (m members) flag(name string) *bool {
	if value, given := member[bool](m, name, "true or false"); given {
		return &value
	}
	return nil
}

func (m members) list(name string) []any {
	value, _ := member[[]any](m, name, "a list")
	return value
}

// required is list for a member that must be there.
func (m members) required(name string) []any {
	if m.object[name] == nil {
		m.refuse(name, "is required")
	}
	return m.list(name)
}

// inner reads a member that is an object itself, an empty one when absent.
func (m members) inner(name string) members {
	value, _ := member[map[string]any](m, name, "an object")
	return members{object: value, where: m.where + name + ".", err: m.err}
}

// item reads an element of a list as an object.
func (m members) item(list string, index int, value any) members {
	at := list + "[" + strconv.Itoa(index) + "]"
	object, ok := value.(map[string]any)
	if !ok {
		m.refuse(at, "must be an object")
	}
	return members{object: object, where: m.where + at + ".", err: m.err}
}

func (m members) texts(name string) []string {
	list := m.list(name)
	texts := make([]string, 0, len(list))
	for i, value := range list {
		text, ok := value.(string)
		if !ok {
			m.refuse(name+"["+strconv.Itoa(i)+"]", "must be text")
		}
		texts = append(texts, text)
	}
	return texts
}
