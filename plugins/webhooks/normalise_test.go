package webhooks

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/objecthost/objecthost/core/object"
)

// lookupSample knows account without trash and note with it.
func lookupSample(name string) (*object.Schema, bool) {
	switch name {
	case "account":
		return &object.Schema{Name: name}, true
	case "note":
		return &object.Schema{Name: name, Trash: true}, true
	}
	return nil, false
}

func create(values map[string]any) request {
	return request{create: true, values: values, lookup: lookupSample}
}

func update(stored, values map[string]any) request {
	return request{values: values, stored: stored, lookup: lookupSample}
}

// complaints runs normalise and lists what it refuses as "field code".
func complaints(t *testing.T, in request) []string {
	t.Helper()
	_, err := normalise(in)
	if err == nil {
		return nil
	}
	var r *refusal
	if !errors.As(err, &r) {
		t.Fatalf("normalise: %v", err)
	}
	var out []string
	for _, p := range r.problems {
		out = append(out, p.field+" "+p.code)
	}
	return out
}

func TestNormaliseValues(t *testing.T) {
	t.Parallel()
	stored := map[string]any{
		"name": "w", "object_name": "account", "triggers": []any{"create"}, "url": "https://a.test/", "method": "post",
		"definition_json": `{"url":"https://a.test/", "method":"POST","triggers":["create"],"label":"L","isActive":true,"timeoutMs":2000}`,
		"label":           "L", "active": true,
	}
	for _, tc := range []struct {
		name string
		in   request
		want map[string]any
		drop []string
	}{
		{"columns only", create(map[string]any{"name": "w", "url": "https://a.test/", "triggers": "CREATE, update", "method": "PUT"}),
			map[string]any{"triggers": []any{"create", "update"}, "method": "put"}, nil},
		{"definition fills columns", create(map[string]any{"definition_json": `{"name":"w","object":"account","triggers":["create"],"url":"https://a.test/","method":"PATCH","isActive":false,"description":"d","label":"l"}`}),
			map[string]any{"name": "w", "object_name": "account", "triggers": []any{"create"}, "url": "https://a.test/",
				"method": "patch", "active": false, "description": "d", "label": "l"}, nil},
		{"null column on create is left out", create(map[string]any{"method": nil, "label": nil, "definition_json": `{"method":"PUT","label":"l"}`}),
			map[string]any{"method": "put", "label": "l"}, nil},
		{"same value twice", create(map[string]any{"method": "put", "triggers": []any{"update", "create"}, "active": true,
			"definition_json": `{"method":"PUT","triggers":["CREATE","update"],"isActive":true}`}),
			map[string]any{"method": "put", "triggers": []any{"update", "create"}}, nil},
		{"definition given as an object", create(map[string]any{"definition_json": map[string]any{"url": "https://a.test/?a=1&b=<2>"}}),
			map[string]any{"url": "https://a.test/?a=1&b=<2>", "definition_json": `{"url":"https://a.test/?a=1&b=<2>"}`}, nil},
		{"secrets move", create(map[string]any{"definition_json": `{"secret":"s","headers":{"X-A":"b"},"authentication":{"type":"bearer","credentials":"t"},"timeoutMs":1000}`}),
			map[string]any{"signing_secret": "s", "headers_secret": `{"X-A":"b"}`, "auth_secret": "t",
				"definition_json": `{"authentication":{"type":"bearer"},"timeoutMs":1000}`}, nil},
		{"column beats definition", create(map[string]any{"signing_secret": "column", "definition_json": `{"secret":"blob"}`}),
			map[string]any{"signing_secret": "column", "definition_json": `{}`}, nil},
		{"null column beats definition", update(stored, map[string]any{"signing_secret": nil, "definition_json": `{"secret":"blob"}`}),
			map[string]any{"signing_secret": nil, "definition_json": `{}`}, nil},
		{"echoed mask leaves the word to the definition", update(stored, map[string]any{"signing_secret": mask, "definition_json": `{"secret":"blob"}`}),
			map[string]any{"signing_secret": "blob", "definition_json": `{}`}, nil},
		{"echoed masks keep", update(stored, map[string]any{"signing_secret": mask, "headers_secret": "secret:sec_fea9", "auth_secret": mask}),
			map[string]any{}, []string{"signing_secret", "headers_secret", "auth_secret"}},
		{"masks in the definition keep", update(stored, map[string]any{"definition_json": `{"secret":"` + mask + `","headers":"secret:sec_1"}`}),
			map[string]any{"definition_json": `{}`}, nil},
		{"null clears", update(stored, map[string]any{"definition_json": `{"secret":null,"headers":null,"authentication":{"type":"none","credentials":null}}`}),
			map[string]any{"signing_secret": nil, "headers_secret": nil, "auth_secret": nil, "definition_json": `{"authentication":{"type":"none"}}`}, nil},
		{"empty texts clear", update(stored, map[string]any{"signing_secret": "", "headers_secret": "", "auth_secret": ""}),
			map[string]any{"signing_secret": nil, "headers_secret": nil, "auth_secret": nil}, nil},
		{"headers as an object", update(stored, map[string]any{"headers_secret": map[string]any{"X-A": "b"}}),
			map[string]any{"headers_secret": `{"X-A":"b"}`}, nil},
		{"empty headers are none", update(stored, map[string]any{"headers_secret": "{}"}), map[string]any{"headers_secret": nil}, nil},
		{"definition without secrets keeps them", update(stored, map[string]any{"definition_json": `{"timeoutMs":3000}`}), map[string]any{}, nil},
		{"column alone updates the definition", update(stored, map[string]any{"url": "https://b.test/", "method": "put", "triggers": "update", "active": false, "label": nil}),
			map[string]any{"method": "put", "triggers": []any{"update"},
				"definition_json": `{"url":"https://b.test/","method":"PUT","triggers":["update"],"isActive":false,"timeoutMs":2000}`}, nil},
		{"column the definition does not mention", update(stored, map[string]any{"description": "d"}), map[string]any{}, nil},
		{"column with the same value", update(stored, map[string]any{"method": "POST"}), map[string]any{"method": "post"}, nil},
		{"nulls in the definition count as left out", create(map[string]any{"definition_json": `{"url":null,"timeoutMs":null,"method":null}`, "url": "https://a.test/"}),
			map[string]any{}, nil},
		{"secrets of an earlier release move with the next write",
			update(map[string]any{"definition_json": `{"secret":"old","headers":{"X-A":"b"},"timeoutMs":2000}`, "headers_secret": "secret:sec_h"},
				map[string]any{"label": "x"}),
			map[string]any{"signing_secret": "old", "definition_json": `{"timeoutMs":2000}`}, nil},
		{"an unusable stored definition stays", update(map[string]any{"definition_json": `{"nope":1,"url":"u","secret":"s"}`}, map[string]any{"url": "https://a.test/"}),
			map[string]any{}, nil},
	} {
		got, err := normalise(tc.in)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if diff := cmp.Diff(tc.want, got.values); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
		if !slices.Equal(got.drop, tc.drop) {
			t.Errorf("%s: drops %v, want %v", tc.name, got.drop, tc.drop)
		}
	}
}

func TestNormaliseRefusals(t *testing.T) {
	t.Parallel()
	stored := map[string]any{"object_name": "note", "triggers": []any{"undelete"}, "definition_json": `{}`}
	for _, tc := range []struct {
		name string
		in   request
		want []string
	}{
		{"method differs", create(map[string]any{"method": "put", "definition_json": `{"method":"POST"}`}), []string{"method invalid_value"}},
		{"triggers differ", create(map[string]any{"triggers": []any{"create"}, "definition_json": `{"triggers":["update"]}`}), []string{"triggers invalid_value"}},
		{"url differs", create(map[string]any{"url": "https://a.test/", "definition_json": `{"url":"https://b.test/"}`}), []string{"url invalid_value"}},
		{"label cleared and given", update(stored, map[string]any{"label": nil, "definition_json": `{"label":"x"}`}), []string{"label invalid_value"}},
		{"several at once", create(map[string]any{"name": "Bad Name", "method": "trace", "triggers": "nope", "definition_json": `{"timeoutMs":1}`}),
			[]string{"definition_json min_value", "name invalid_format", "method invalid_option", "triggers invalid_option"}},
		{"empty definition", create(map[string]any{"definition_json": ""}), []string{"definition_json invalid_json"}},
		{"list as definition", create(map[string]any{"definition_json": []any{}}), []string{"definition_json invalid_json"}},
		{"text list as definition", create(map[string]any{"definition_json": "[]"}), []string{"definition_json invalid_json"}},
		{"broken definition", create(map[string]any{"definition_json": `{"a"`}), []string{"definition_json invalid_json"}},
		{"definition cleared", update(stored, map[string]any{"definition_json": nil}), []string{"definition_json required"}},
		{"unknown object", create(map[string]any{"object_name": "acount"}), []string{"object_name reference_not_found"}},
		{"object in another case", create(map[string]any{"object_name": "Account"}), []string{"object_name reference_not_found"}},
		{"object with a blank", create(map[string]any{"object_name": " account"}), []string{"object_name reference_not_found"}},
		{"webhooks on webhooks", create(map[string]any{"object_name": "sys_webhook"}), []string{"object_name invalid_value"}},
		{"undelete without an object", create(map[string]any{"triggers": []any{"undelete"}}), []string{"triggers invalid_option"}},
		{"undelete without trash", create(map[string]any{"object_name": "account", "triggers": []any{"undelete"}}), []string{"triggers invalid_option"}},
		{"undelete with trash", create(map[string]any{"object_name": "note", "triggers": []any{"undelete"}}), nil},
		{"object loses its trash", update(stored, map[string]any{"object_name": "account"}), []string{"triggers invalid_option"}},
		{"object cleared", update(stored, map[string]any{"object_name": nil}), []string{"triggers invalid_option"}},
		{"other column of such a row", update(stored, map[string]any{"label": "x"}), nil},
		{"credentials without a type", create(map[string]any{"auth_secret": "t0ken"}), []string{"auth_secret invalid_value"}},
		{"credentials of another type", create(map[string]any{"definition_json": `{"authentication":{"type":"basic","credentials":{"token":"t"}}}`}), []string{"auth_secret invalid_value"}},
		{"a type without credentials", create(map[string]any{"definition_json": `{"authentication":{"type":"bearer"}}`}), []string{"auth_secret required"}},
		{"credentials cleared", update(map[string]any{"definition_json": `{"authentication":{"type":"bearer"}}`, "auth_secret": "secret:sec_1"},
			map[string]any{"auth_secret": nil}), []string{"auth_secret required"}},
		{"a type with stored credentials", update(map[string]any{"auth_secret": "secret:sec_1"},
			map[string]any{"definition_json": `{"authentication":{"type":"bearer"}}`}), nil},
		{"credentials of no type", create(map[string]any{"auth_secret": map[string]any{"token": "t"}, "definition_json": `{"authentication":{"type":"none"}}`}), []string{"auth_secret invalid_value"}},
	} {
		if got := complaints(t, tc.in); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestCase_EVT_10_object_name_hint(t *testing.T) {
	t.Parallel()
	_, err := normalise(create(map[string]any{"object_name": " Account "}))
	if want := `Object: there is no object " Account "; use "account"`; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	in := create(map[string]any{"object_name": "later_object", "triggers": "create"})
	in.system = true
	got, err := normalise(in)
	if err != nil || !slices.Equal(got.warnings, []string{`there is no object "later_object" yet`}) {
		t.Errorf("a declaration for a later object: %v, %v", got.warnings, err)
	}
}

func TestEmptyTriggersWarn(t *testing.T) {
	t.Parallel()
	for _, in := range []request{
		create(map[string]any{}), create(map[string]any{"triggers": []any{}}), create(map[string]any{"triggers": ""}),
		update(map[string]any{"triggers": []any{"create"}}, map[string]any{"triggers": nil}),
	} {
		got, err := normalise(in)
		if err != nil || !slices.Equal(got.warnings, []string{"it has no triggers and will never fire"}) {
			t.Errorf("%v: %v, %v", in.values, got.warnings, err)
		}
	}
	got, err := normalise(update(map[string]any{}, map[string]any{"label": "x"}))
	if err != nil || len(got.warnings) > 0 {
		t.Errorf("a write of another column warns: %v, %v", got.warnings, err)
	}
}

// A broken header map is reported alone, whatever else is wrong.
func TestHeadersAreCheckedFirst(t *testing.T) {
	t.Parallel()
	for name, values := range map[string]map[string]any{
		"column":              {"headers_secret": `{"X-A":5}`, "triggers": "nope", "definition_json": "broken"},
		"definition":          {"definition_json": `{"nope":1,"headers":{"X-A":5}}`, "name": "Bad"},
		"column and the blob": {"headers_secret": `{"X-A":5}`, "definition_json": `{"headers":{}}`},
	} {
		_, err := normalise(create(values))
		var refused *HeaderError
		if !errors.As(err, &refused) || refused.Header != "X-A" {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestParseAuthentication(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		kind, given string
		want        map[string]string
		err         string
	}{
		{"bearer", `{"token":"t"}`, map[string]string{"token": "t"}, ""},
		{"bearer", "t", map[string]string{"token": "t"}, ""},
		{"basic", `{"username":"u","password":"p:q"}`, map[string]string{"username": "u", "password": "p:q"}, ""},
		{"basic", "u:p:q", map[string]string{"username": "u", "password": "p:q"}, ""},
		{"basic", `{"username":"u","password":""}`, map[string]string{"username": "u", "password": ""}, ""},
		{"api-key", `{"key":"k","header":"X-K"}`, map[string]string{"key": "k", "header": "X-K"}, ""},
		{"api-key", "k", map[string]string{"key": "k"}, ""},
		{"basic", "s3cret", nil, `authentication: credential "username" is missing`},
		{"bearer", `{"token":5}`, nil, `authentication: credential "token" is not a text`},
		{"bearer", `{"token":`, nil, `authentication: the credentials are not valid JSON`},
		{"bearer", `{"key":"k"}`, nil, `authentication: credential "key" is unknown for type "bearer"`},
		{"bearer", `{"token":"t","x":"y"}`, nil, `authentication: credential "x" is unknown for type "bearer"`},
	} {
		auth, err := parseAuthentication(tc.kind, tc.given)
		var got map[string]string
		message := ""
		if err != nil {
			message = err.Error()
		} else {
			got = auth.Credentials
		}
		if message != tc.err || !cmp.Equal(got, tc.want) {
			t.Errorf("%s %s: got %v, %q, want %v, %q", tc.kind, tc.given, got, message, tc.want, tc.err)
		}
	}
}
