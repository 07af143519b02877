package remote

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/objecthost/objecthost/core/object"
)

func (s *session) object() *cobra.Command {
	var system bool
	list := &cobra.Command{
		Use: "list", Short: "List the objects", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return s.listObjects(c, system) },
	}
	list.Flags().BoolVar(&system, "system", false, "system objects too")
	show := &cobra.Command{
		Use: "show NAME", Short: "Show an object's fields", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return s.showObject(c, args[0]) },
	}
	return group("object", "Look at the objects of a running host", list, show)
}

func (s *session) listObjects(c *cobra.Command, system bool) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	var answer struct {
		Items []object.Schema `json:"items"`
	}
	if err := api.Do(c.Context(), http.MethodGet, "/api/v1/meta/object", nil, &answer); err != nil {
		return err
	}
	shown := answer.Items[:0]
	for _, o := range answer.Items {
		if system || !o.IsSystem {
			shown = append(shown, o)
		}
	}
	return s.show(c, shown, func(w io.Writer) error {
		t := newTable("NAME", "LABEL", "FIELDS", "DESCRIPTION")
		for _, o := range shown {
			t.add(o.Name, o.Label, fmt.Sprint(len(o.Fields)), o.Description)
		}
		return t.print(w, widthOf(w, s.getenv))
	})
}

func (s *session) showObject(c *cobra.Command, name string) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	var answer struct {
		Item object.Schema `json:"item"`
	}
	if err := api.Do(c.Context(), http.MethodGet, "/api/v1/meta/object/"+url.PathEscape(name), nil, &answer); err != nil {
		return err
	}
	return s.show(c, answer.Item, func(w io.Writer) error {
		t := newTable("FIELD", "TYPE", "LABEL", "RULES")
		for _, f := range answer.Item.Fields {
			t.add(f.Name, string(f.Type), f.Label, rules(f))
		}
		return t.print(w, widthOf(w, s.getenv))
	})
}

// rules is what a field asks of its values, in words.
func rules(f object.Field) string {
	var out []string
	add := func(when bool, format string, args ...any) {
		if when {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(f.Required, "required")
	add(f.Readonly, "readonly")
	add(f.Unique != "", "unique")
	add(f.MinLength != nil, "minLength %d", deref(f.MinLength))
	add(f.MaxLength != nil, "maxLength %d", deref(f.MaxLength))
	add(f.Min != "", "min %s", f.Min)
	add(f.Max != "", "max %s", f.Max)
	add(f.Reference != "", "-> %s", f.Reference)
	add(len(f.DefaultValue) > 0, "default %s", f.DefaultValue)
	values := make([]string, 0, len(f.Options))
	for _, o := range f.Options {
		values = append(values, o.Value)
	}
	add(len(values) > 0, "one of %s", strings.Join(values, "|"))
	return strings.Join(out, ", ")
}

func deref(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}
