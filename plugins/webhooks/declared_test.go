package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging/messagingtest"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func environment(values map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, set := values[name]
		return value, set
	}
}

func TestParseDeclarations(t *testing.T) {
	t.Parallel()
	getenv := environment(map[string]string{"SECRET": "s3cret", "HOST": "recv.test", "EMPTY": ""})
	for name, tc := range map[string]struct {
		source string
		want   []string
		err    string
	}{
		"one":            {"name: w\nurl: https://recv.test/", []string{`{"name":"w","url":"https://recv.test/"}`}, ""},
		"list":           {"- name: a\n- name: b", []string{`{"name":"a"}`, `{"name":"b"}`}, ""},
		"documents":      {"# hooks\n---\nname: a\n---\nname: b\n", []string{`{"name":"a"}`, `{"name":"b"}`}, ""},
		"empty document": {"name: a\n---\n---\nname: b\n", nil, `webhooks: declaration w.yaml line 2: is an empty document`},
		"JSON":           {`{"name":"a","timeoutMs":2000}`, []string{`{"name":"a","timeoutMs":2000}`}, ""},
		"empty":          {"", nil, ""},
		"variables":      {"name: a\nurl: https://${HOST}/in\nsecret: ${SECRET}${EMPTY}\nheaders: {X-A: \"a ${SECRET}\"}\nauthentication: {type: bearer, credentials: {token: \"${SECRET}\"}}", []string{`{"authentication":{"credentials":{"token":"s3cret"},"type":"bearer"},"headers":{"X-A":"a s3cret"},"name":"a","secret":"s3cret","url":"https://recv.test/in"}`}, ""},
		"other keys":     {"name: a\ndescription: costs ${SECRET}", []string{`{"description":"costs ${SECRET}","name":"a"}`}, ""},
		"escape":         {`{"secret":"$${SECRET}$"}`, []string{`{"secret":"${SECRET}$"}`}, ""},
		"unset variable": {"secret: ${NOPE}", nil, `webhooks: declaration w.yaml webhook 1: secret: the environment variable "NOPE" is not set`},
		"unclosed":       {"secret: ${NOPE", nil, `webhooks: declaration w.yaml webhook 1: secret: a ${ is not closed`},
		"no map":         {"- a", nil, `webhooks: declaration w.yaml webhook 1: is no webhook: it must be a map`},
		"broken":         {"name: a\nsecret: [s3cret", nil, `webhooks: declaration w.yaml line 2: is not valid YAML`},
		"duplicate":      {"name: a\nname: b", nil, `webhooks: declaration w.yaml line 2: is not valid YAML`},
	} {
		got, err := parseDeclarations("w.yaml", []byte(tc.source), getenv)
		message := ""
		if err != nil {
			message = err.Error()
		}
		var sources []string
		for _, d := range got {
			sources = append(sources, string(d.source))
		}
		if message != tc.err || !cmp.Equal(sources, tc.want) {
			t.Errorf("%s: got %q, %q, want %q, %q", name, sources, message, tc.want, tc.err)
		}
	}
}

// FuzzExpand holds that only variables that are set get in, and that text
// without a dollar stays as it is.
func FuzzExpand(f *testing.F) {
	for _, seed := range []string{"a ${X} b", "$${X}", "${", "${}", "$$${X}", "}${X}{"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		got, err := expand(source, environment(map[string]string{"X": "1"}))
		if err != nil {
			if !strings.Contains(source, "${") {
				t.Fatalf("%q: %v", source, err)
			}
			return
		}
		if !strings.Contains(source, "${") && got != source {
			t.Fatalf("%q became %q", source, got)
		}
		if plain := strings.ReplaceAll(strings.ReplaceAll(source, "$${", ""), "${X}", ""); strings.Contains(plain, "${") {
			t.Fatalf("%q was taken as %q", source, got)
		}
	})
}

// declare writes a folder of declarations.
func declare(t *testing.T, source string) Config {
	t.Helper()
	dir := t.TempDir()
	fatal(t, os.WriteFile(filepath.Join(dir, "hooks.yaml"), []byte(source), 0o600))
	fatal(t, os.WriteFile(filepath.Join(dir, "README.md"), []byte("no webhook"), 0o600))
	return Config{Dir: dir, Getenv: environment(map[string]string{"SECRET": "s3cret"})}
}

func (n *node) named(t testing.TB, name string) data.Record {
	t.Helper()
	row, err := n.plugin.service.store.Named(t.Context(), "", name)
	fatal(t, err)
	if row == nil {
		t.Fatalf("no webhook %q", name)
	}
	record, err := n.engine.Get(system(t), ObjectName, row.ID)
	fatal(t, err)
	return record
}

func TestCase_EVT_13_declared_webhooks(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		key, r := keyOf(t), messagingtest.New(t)
		deploy := func(source string, still bool) *node {
			t.Helper()
			return newNode(t, storagetest.Open(t, dsn, storage.Config{}), nodeConfig{keyring: key, cfg: declare(t, source), still: still})
		}
		v1 := "name: crm\nlabel: CRM\nobject: account\ntriggers: [create]\nurl: " + r.URL + "\nsecret: ${SECRET}\nheaders: {X-Team: crm}\ntimeoutMs: 2000\n"
		n := deploy(v1, false)
		first := n.named(t, "crm")
		if first["managed_by"] != "package" || first["customized"] != false || first["label"] != "CRM" || first["active"] != true ||
			first["signing_secret"] != mask || strings.Contains(first["definition_json"].(string), "s3cret") {
			t.Errorf("row %v", first)
		}
		n.create(t, "account", data.Record{"name": "a"})
		got, err := waitFor(t, r, 1)
		fatal(t, err)
		if req := got[0]; req.Header.Get("X-Objectstack-Signature") != signature("s3cret", req.Body) || req.Header.Get("X-Team") != "crm" {
			t.Errorf("headers %v", req.Header)
		}
		n.stop(t)

		again := deploy(v1, true).named(t, "crm")
		if diff := cmp.Diff(first, again); diff != "" {
			t.Errorf("a start without a change wrote the row:\n%s", diff)
		}
		v2 := strings.Replace(strings.Replace(v1, "label: CRM\n", "", 1), "[create]", "[update]", 1)
		next := deploy(v2, true)
		second := next.named(t, "crm")
		if second["id"] != first["id"] || second["label"] != nil || !cmp.Equal(second["triggers"], []any{"update"}) {
			t.Errorf("row %v", second)
		}
		// Switched off by the host it stays off, also when its package changes.
		_, err = next.engine.Update(system(t), ObjectName, second["id"].(string), data.Record{"active": false, "disabled_reason": "gone"}, data.Match{})
		fatal(t, err)
		if row := deploy(v1, true).named(t, "crm"); row["active"] != false || row["label"] != "CRM" || row["disabled_reason"] != "gone" {
			t.Errorf("row %v", row)
		}
		// Switched off by hand nothing of it changes any more.
		off := newNode(t, storagetest.Open(t, dsn, storage.Config{}), nodeConfig{keyring: key, still: true, authorizer: allowed{PermissionManage: true}})
		_, err = off.engine.Update(asUser(t), ObjectName, second["id"].(string), data.Record{"active": true}, data.Match{})
		fatal(t, err)
		_, err = off.engine.Update(asUser(t), ObjectName, second["id"].(string), data.Record{"active": false}, data.Match{})
		fatal(t, err)
		for range 3 {
			if row := deploy(v2, true).named(t, "crm"); row["active"] != false || row["customized"] != true || row["label"] != "CRM" {
				t.Errorf("row %v", row)
			}
		}
	})
}

func TestDeclaredWebhooksOfPlugins(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		n := newNode(t, db, nodeConfig{still: true})
		id := n.hook(t, data.Record{"name": "mine", "url": "https://mine.test/"})
		if err := n.plugin.service.Declare("late"); err == nil {
			t.Error("a declaration after the start was taken")
		}
		plant := func(list ...string) error {
			var all []declaration
			for _, source := range list {
				all = append(all, declaration{"com.example.crm webhook 1", json.RawMessage(source)})
			}
			return n.plugin.service.plant(t.Context(), all)
		}
		fatal(t, plant(`{"name":"mine","url":"https://package.test/"}`, `{"name":"later","url":"https://a.test/","object":"comes_later","triggers":["create"]}`))
		if row := n.named(t, "mine"); row["id"] != id || row["url"] != "https://mine.test/" || row["managed_by"] != "admin" {
			t.Errorf("an administrator's webhook was taken over: %v", row)
		}
		if row := n.named(t, "later"); row["object_name"] != "comes_later" {
			t.Errorf("row %v", row)
		}
		for source, want := range map[string]string{
			`{"url":"https://a.test/"}`:                                        "has no name",
			`{"name":"a","url":"nope"}`:                                        "URL: scheme must be http or https",
			`{"name":"a","url":"https://a.test/","timeoutMs":1}`:               "Definition: timeoutMs must be an integer from 1000 to 300000",
			`{"name":"a","url":"https://a.test/","headers":{"Host":"s3cret"}}`: `custom headers refused for "sys_webhook.headers_secret": header "Host" is reserved`,
		} {
			var refused *DeclarationError
			if err := plant(source); !errors.As(err, &refused) || refused.Reason != want || refused.Origin != "com.example.crm webhook 1" {
				t.Errorf("%s: got %v, want %s", source, err, want)
			}
		}
		if err := plant(`{"name":"a","url":"https://a.test/"}`, `{"name":"a","url":"https://b.test/"}`); err == nil || !strings.Contains(err.Error(), "has the name \"a\"") {
			t.Errorf("two of one name: %v", err)
		}
	})
}

// Nodes that start at once plant one row.
func TestCase_EVT_13_nodes_that_start_at_once(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		n := newNode(t, db, nodeConfig{still: true})
		done := make(chan error)
		for range 8 {
			go func() {
				done <- n.plugin.service.plant(context.WithoutCancel(t.Context()),
					[]declaration{{"x", json.RawMessage(`{"name":"w","url":"https://a.test/"}`)}})
			}()
		}
		for range 8 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		rows, err := n.plugin.service.store.All(t.Context())
		fatal(t, err)
		if len(rows) != 1 {
			t.Errorf("%d rows", len(rows))
		}
	})
}
