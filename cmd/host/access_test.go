package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/objecthost/objecthost/cmd/host/internal/settings"
	"github.com/objecthost/objecthost/services/auth"
	"github.com/objecthost/objecthost/services/rest"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// inhabited is a running host with two organizations besides the default one.
type inhabited struct {
	url    string
	routes []rest.OwnedRoute
	root   string // the first key: administrator of the default organization
	// receiver takes deliveries.
	receiver string
	// wide are the permissions that reach over organizations.
	wide map[string]bool
}

const accessObjects = `name: account
label: Account
nameField: name
trash: true
fields:
  name: {type: text, label: Name, required: true, searchable: true}
  code: {type: text, label: Code, unique: true, maxLength: 20}
  amount: {type: number, label: Amount}
  serial: {type: autonumber, format: "A-{0000}", label: Serial}
  parent: {type: lookup, reference: account, label: Parent}
  salary: {type: number, label: Salary, permission: accounts.read_salary}
`

const accessFlow = `{"name":"copy","label":"Copy","type":"autolaunched","status":"active","runAs":"system",
	"variables":[{"name":"found","type":"number","isOutput":true}],
	"nodes":[{"id":"start","type":"start","label":"Start"},
		{"id":"all","type":"get_record","label":"All","config":{"objectName":"account","filter":{"name":{"$ne":""}},"limit":100,"outputVariable":"rows"}},
		{"id":"end","type":"end","label":"End"}],
	"edges":[{"id":"e1","source":"start","target":"all"},{"id":"e2","source":"all","target":"end"}]}`

func inhabit(t *testing.T, dsn string) *inhabited {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "account.yaml"), []byte(accessObjects), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := settings.Settings{
		DB: dsn, Listen: "127.0.0.1:0", Objects: dir, EgressAllow: []string{"127.0.0.1"}, LogLevel: slog.LevelError, LogFormat: "text",
		Grace: 10 * time.Second, KeyFile: filepath.Join(t.TempDir(), "host.key"),
	}
	h := &inhabited{}
	var log bytes.Buffer
	host, cleanup, err := newHost(t.Context(), cfg, console{
		stderr: &log, notice: func(string) {}, firstKey: func(_ context.Context, k auth.NewKey) { h.root = k.Secret },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(t.Context()); err != nil {
		cleanup()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := host.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
		cleanup()
		if t.Failed() && log.Len() > 0 {
			t.Logf("log:\n%s", log.String())
		}
	})
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(receiver.Close)
	h.url, h.routes, h.receiver, h.wide = "http://"+host.Addr(), host.server.Routes(), receiver.URL, map[string]bool{}
	for _, p := range host.kernel.Plugins() {
		for _, permission := range p.Manifest.Contributes.Permissions {
			if permission.Host {
				h.wide[permission.Name] = true
			}
		}
	}
	return h
}

// answered is an answer without what differs from request to request.
type answered struct {
	Status int
	Body   string
}

var (
	aTime     = regexp.MustCompile(`"20\d\d-\d\d-\d\dT[0-9:.]+Z"`)
	aDuration = regexp.MustCompile(`"durationMs":\d+`)
	aRun      = regexp.MustCompile(`run_[0-9a-f-]{36}`)
)

// call makes one request in the name of a credential, "" for nobody.
func (h *inhabited) call(t *testing.T, credential, method, path, body string) answered {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, h.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if credential != "" {
		r.Header.Set("Authorization", "Bearer "+credential)
	}
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return answered{w.StatusCode, string(text)}
}

// ok is call for a request that must succeed, and returns its body.
func (h *inhabited) ok(t *testing.T, credential, method, path, body string) map[string]any {
	t.Helper()
	a := h.call(t, credential, method, path, body)
	var out map[string]any
	if a.Status/100 != 2 || json.Unmarshal([]byte(a.Body), &out) != nil {
		t.Fatalf("%s %s: %d %s", method, path, a.Status, a.Body)
	}
	return out
}

// administrator makes an organization with an owner, who is signed in.
func (h *inhabited) administrator(t *testing.T, slug string) (token string) {
	t.Helper()
	o := h.ok(t, h.root, "POST", "/api/v1/auth/organization/create", fmt.Sprintf(`{"name":%q,"slug":%q}`, slug, slug))
	body := fmt.Sprintf(`{"email":"owner@%s.example","password":"correct horse","organizationId":%q,"role":"owner"}`, slug, o["id"])
	h.ok(t, h.root, "POST", "/api/v1/auth/admin/create-user", body)
	in := h.ok(t, "", "POST", "/api/v1/auth/sign-in/email", fmt.Sprintf(`{"email":"owner@%s.example","password":"correct horse"}`, slug))
	return in["token"].(string)
}

// key makes an API key in the name of a credential.
func (h *inhabited) key(t *testing.T, credential string, scopes ...string) string {
	t.Helper()
	list, err := json.Marshal(scopes)
	if err != nil {
		t.Fatal(err)
	}
	made := h.ok(t, credential, "POST", "/api/v1/keys", `{"scopes":`+string(list)+`}`)
	return made["data"].(map[string]any)["key"].(string)
}

// fill puts values into a route's pattern.
func fill(pattern string, values map[string]string) string {
	return regexp.MustCompile(`\{([a-z_A-Z]+)(\.\.\.)?\}`).ReplaceAllStringFunc(strings.ReplaceAll(pattern, "{$}", ""), func(p string) string {
		name := strings.Trim(strings.TrimSuffix(strings.Trim(p, "{}"), "..."), "{}")
		if v, ok := values[name]; ok {
			return v
		}
		return "x"
	})
}

// streams are routes that answer for as long as the client listens.
func streams(r rest.OwnedRoute) bool { return strings.HasSuffix(r.Pattern, "/stream") }

// openToAll are the routes that every authenticated caller may use, because
// what they answer or change is the caller's own, shared by all, or asked for
// again inside. Every other route refuses a caller without its permission.
var openToAll = []string{
	"GET /api/v1/automation", "GET /api/v1/automation/actions", "GET /api/v1/automation/{name}",
	"GET /api/v1/meta", "GET /api/v1/meta/{type}", "GET /api/v1/meta/{type}/{name}",
	"GET /api/v1/data/import/jobs", "GET /api/v1/data/import/jobs/{id}", "GET /api/v1/data/import/jobs/{id}/results",
	"POST /api/v1/data/import/jobs/{id}/cancel", "POST /api/v1/data/import/jobs/{id}/undo",
	"GET /api/v1/notifications", "POST /api/v1/notifications/read", "POST /api/v1/notifications/read/all",
	"GET /api/v1/openapi.json", "GET /api/v1/i18n/locales", "GET /api/v1/i18n/translations/{locale}", "GET /api/v1/i18n/labels/{object}/{locale}",
	"GET /api/v1/ui/view/{object}/{kind}", "GET /api/v1/packages", "GET /api/v1/packages/{id}",
	"GET /api/v1/auth/me/permissions", "GET /api/v1/auth/organization/list", "GET /api/v1/auth/organization/get-active-member",
}

// TestEveryRouteAsksWhoCalls calls every route that the host serves for nobody,
// with a wrong key, and with a key that lacks the permission.
func TestEveryRouteAsksWhoCalls(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		h := inhabit(t, dsn)
		lacking := h.key(t, h.root, "object:nothing:get")
		bodies := map[string]string{
			"POST /api/v1/batch":                     `{"operations":[{"object":"account","action":"create","data":{"name":"x"}}]}`,
			"POST /api/v1/data/{object}/batch":       `{"operation":"create","records":[{"data":{"name":"x"}}]}`,
			"POST /api/v1/data/{object}/updateMany":  `{"records":[{"id":"x","data":{}}]}`,
			"POST /api/v1/data/{object}/deleteMany":  `{"ids":["x"]}`,
			"POST /api/v1/data/{object}/import":      `{"rows":[{"name":"x"}]}`,
			"POST /api/v1/data/{object}/import/jobs": `{"rows":[{"name":"x"}]}`,
			"POST /api/v1/data/{object}/createMany":  `[{"name":"x"}]`,
		}
		sessions := regexp.MustCompile(`^/api/v1/auth/`)
		asked := 0
		for _, route := range h.routes {
			name := route.Method + " " + route.Pattern
			path := fill(route.Pattern, map[string]string{"object": "account", "type": "object"})
			body := bodies[name]
			if body == "" {
				body = "{}"
			}
			anonymous := h.call(t, "", route.Method, path, body)
			wrong := h.call(t, "osk_"+strings.Repeat("A", 43), route.Method, path, body)
			if route.Anonymous {
				if anonymous.Status >= 500 || anonymous.Status != wrong.Status {
					t.Errorf("%s for everybody: %v, with a wrong key: %v", name, anonymous, wrong)
				}
				continue
			}
			if anonymous.Status != 401 || wrong.Status != 401 {
				t.Errorf("%s: anonymous %v, with a wrong key %v; want 401", name, anonymous, wrong)
			}
			if anonymous != wrong {
				t.Errorf("%s tells a wrong key from none: %v, %v", name, anonymous, wrong)
			}
			if streams(route) {
				continue
			}
			without := h.call(t, lacking, route.Method, path, body)
			asked++
			switch {
			case slices.Contains(openToAll, name):
				if without.Status >= 500 {
					t.Errorf("%s: %v", name, without)
				}
			case without.Status != 403:
				t.Errorf("%s without the permission: %v, want 403", name, without)
			case route.Permission != "" && strings.Contains(without.Body, "SESSION_REQUIRED") && !sessions.MatchString(route.Pattern):
				t.Errorf("%s: %v", name, without)
			}
		}
		if asked < 40 {
			t.Errorf("only %d routes were asked", asked)
		}
		for _, name := range openToAll {
			if !slices.ContainsFunc(h.routes, func(r rest.OwnedRoute) bool { return r.Method+" "+r.Pattern == name }) && !optional(name) {
				t.Errorf("%s is expected to be open, but there is no such route", name)
			}
		}
	})
}

// optional are routes of parts that a host may lack.
func optional(name string) bool { return strings.Contains(name, "/ui/") }

// TestWebhooksSendNothingThatTheirWriterMayNotRead: whoever chooses where
// records go has to be allowed to read them.
func TestWebhooksSendNothingThatTheirWriterMayNotRead(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		h := inhabit(t, dsn)
		full := h.key(t, h.root, "data:read", "data:write", "webhooks.manage", "accounts.read_salary")
		less := h.key(t, h.root, "data:read", "data:write", "webhooks.manage")
		blind := h.key(t, h.root, "object:sys_webhook:*", "webhooks.manage", "accounts.read_salary")
		hooks := 0
		create := func(credential, object string) answered {
			hooks++
			return h.call(t, credential, "POST", "/api/v1/data/sys_webhook", fmt.Sprintf(`{"name":"h%d","object_name":%s,"url":%q}`, hooks, object, h.receiver))
		}
		for name, test := range map[string]struct {
			credential, object string
			want               int
		}{
			"all of it": {full, `"account"`, 201}, "all objects": {full, `null`, 201},
			"without a field": {less, `"account"`, 403}, "all objects, without a field": {less, `null`, 403},
			"not the object": {blind, `"account"`, 403}, "not all objects": {blind, `null`, 403},
			"another object": {less, `"sys_http_delivery"`, 403}, "what nobody reads": {h.root, `"sys_notification"`, 403},
		} {
			if a := create(test.credential, test.object); a.Status != test.want {
				t.Errorf("%s: %v, want %d", name, a, test.want)
			}
		}
		hook := h.ok(t, full, "POST", "/api/v1/data/sys_webhook", fmt.Sprintf(`{"name":"last","object_name":"account","url":%q}`, h.receiver))["id"].(string)
		for body, want := range map[string]int{
			`{"url":"http://127.0.0.1:1/"}`: 403, `{"triggers":["create"]}`: 403, `{"active":false}`: 200, `{"description":"x"}`: 200,
		} {
			if a := h.call(t, less, "PATCH", "/api/v1/data/sys_webhook/"+hook, body); a.Status != want {
				t.Errorf("change %s: %v, want %d", body, a, want)
			}
		}
	})
}

// TestRunsShowTheirDataToFew: what a flow has read may be more than the reader
// of its log may read.
func TestRunsShowTheirDataToFew(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		h := inhabit(t, dsn)
		h.ok(t, h.root, "POST", "/api/v1/automation", `{"name":"tell","label":"Tell","type":"autolaunched","status":"active",
			"variables":[{"name":"found","type":"text","isOutput":true}],
			"nodes":[{"id":"start","type":"start","label":"Start"},{"id":"set","type":"assignment","label":"Set","config":{"assignments":{"found":"the salary"}}}],
			"edges":[{"id":"e1","source":"start","target":"set"}]}`)
		h.ok(t, h.root, "POST", "/api/v1/automation/tell/trigger", `{}`)
		reader := h.key(t, h.root, "data:read")
		full := h.key(t, h.root, "data:read", "automation.read_data")
		runs := h.ok(t, reader, "GET", "/api/v1/data/sys_automation_run?flow_name=tell", "")["records"].([]any)
		id := runs[0].(map[string]any)["id"].(string)
		for _, path := range []string{
			"/api/v1/automation/tell/runs", "/api/v1/automation/tell/runs/" + id, "/api/v1/data/sys_automation_run?flow_name=tell", "/api/v1/data/sys_automation_run/" + id,
		} {
			less, more := h.call(t, reader, "GET", path, ""), h.call(t, full, "GET", path, "")
			if less.Status != 200 || strings.Contains(less.Body, "the salary") {
				t.Errorf("%s without the permission: %v", path, less)
			}
			if more.Status != 200 || !strings.Contains(more.Body, "the salary") {
				t.Errorf("%s with it: %v", path, more)
			}
		}
	})
}
