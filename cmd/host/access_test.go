package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/objecthost/objecthost/cmd/host/internal/settings"
	"github.com/objecthost/objecthost/services/auth"
	"github.com/objecthost/objecthost/services/automation"
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
	h.url, h.routes, h.receiver = "http://"+host.Addr(), host.server.Routes(), receiver.URL
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

// world is what two organizations have, by its use in requests.
type world struct {
	record, trashed, webhook, delivery, run, key, member string
}

// settle gives an organization one of everything.
func (h *inhabited) settle(t *testing.T, token, code string) world {
	t.Helper()
	var w world
	id := func(object, body string) string {
		return h.ok(t, token, "POST", "/api/v1/data/"+object, body)["id"].(string)
	}
	w.webhook = id("sys_webhook", `{"name":"hook","object_name":"account","triggers":["create"],"url":"`+h.receiver+`"}`)
	w.record = id("account", `{"name":"first","code":"`+code+`","amount":1,"salary":7}`)
	w.trashed = id("account", `{"name":"gone"}`)
	h.ok(t, token, "DELETE", "/api/v1/data/account/"+w.trashed, "")
	w.delivery = h.quiet(t, token)
	h.ok(t, token, "PATCH", "/api/v1/data/sys_webhook/"+w.webhook, `{"active":false}`)
	h.ok(t, token, "POST", "/api/v1/automation/copy/trigger", `{}`)
	runs := h.ok(t, token, "GET", "/api/v1/automation/copy/runs", "")["data"].(map[string]any)["runs"].([]any)
	if len(runs) != 1 {
		t.Fatalf("runs %v", runs)
	}
	w.run = runs[0].(map[string]any)["id"].(string)
	made := h.ok(t, token, "POST", "/api/v1/keys", `{"name":"k","scopes":["data:read"]}`)
	w.key = made["data"].(map[string]any)["id"].(string)
	members := h.ok(t, token, "GET", "/api/v1/auth/organization/list-members", "")["members"].([]any)
	w.member = members[0].(map[string]any)["id"].(string)
	return w
}

// quiet returns when all that the organization's webhooks were told of has been
// delivered: the delivery of a record that is made last.
func (h *inhabited) quiet(t *testing.T, token string) (delivery string) {
	t.Helper()
	last := h.ok(t, token, "POST", "/api/v1/data/account", `{"name":"last"}`)["id"].(string)
	told := fmt.Sprintf(`{"where":{"payload_json":{"$contains":%q},"status":"success"},"limit":1}`, last)
	const waiting = `{"where":{"status":{"$in":["pending","in_flight"]}},"limit":1}`
	deliveries := func(query string) []any {
		return h.ok(t, token, "POST", "/api/v1/data/sys_http_delivery/query", query)["records"].([]any)
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if list := deliveries(told); len(list) == 1 && len(deliveries(waiting)) == 0 {
			return list[0].(map[string]any)["id"].(string)
		}
	}
	t.Fatal("the deliveries do not come to an end")
	return ""
}

// TestOrganizationsLearnNothingOfEachOther calls every route in one
// organization with what another one has, and with what nobody has: the answers
// must be the same. Then the other organization works, and everything that the
// first one can ask must be answered as before.
func TestOrganizationsLearnNothingOfEachOther(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		h := inhabit(t, dsn)
		h.ok(t, h.root, "POST", "/api/v1/automation", accessFlow)
		h.ok(t, h.root, "POST", "/api/v1/auth/admin/create-user", `{"email":"ann@default.example","password":"correct horse"}`)
		a, b := h.administrator(t, "acme"), h.administrator(t, "umbra")
		owned := map[string]world{a: h.settle(t, a, "same"), b: h.settle(t, b, "same"), h.root: h.settle(t, h.root, "same")}
		pairs := [][2]string{{a, b}, {h.key(t, b, "admin"), a}, {h.root, a}, {a, h.root}}
		for _, pair := range pairs {
			h.foreign(t, pair[0], owned[pair[1]])
		}
		seed := rand.Uint64()
		for i, pair := range [][2]string{{a, b}, {h.root, a}, {b, h.root}} {
			h.unmoved(t, pair[0], pair[1], rand.New(rand.NewPCG(seed, uint64(i))))
		}
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
}

// foreign calls every route as asker with another organization's things.
func (h *inhabited) foreign(t *testing.T, asker string, theirs world) {
	t.Helper()
	nobody := world{
		record: "AAAAAAAAAAAAAAAA", trashed: "BBBBBBBBBBBBBBBB", webhook: "CCCCCCCCCCCCCCCC", delivery: "00000000-0000-4000-8000-000000000000",
		run: "run_11111111-1111-4111-8111-111111111111", key: "DDDDDDDDDDDDDDDD", member: strings.Repeat("E", 32),
	}
	same := func(method string, path, body func(world) string) {
		t.Helper()
		blank := func(a answered, w world) answered {
			for what, id := range map[string]string{
				"record": w.record, "trashed": w.trashed, "webhook": w.webhook, "delivery": w.delivery, "run": w.run, "key": w.key, "member": w.member,
			} {
				a.Body = strings.ReplaceAll(a.Body, id, "<"+what+">")
			}
			return a
		}
		real := blank(h.call(t, asker, method, path(theirs), body(theirs)), theirs)
		none := blank(h.call(t, asker, method, path(nobody), body(nobody)), nobody)
		if real.Status != none.Status || steady(real.Body) != steady(none.Body) {
			t.Errorf("%s %s:\n what another organization has: %d %s\n what nobody has: %d %s", method, path(nobody), real.Status, real.Body, none.Status, none.Body)
		}
		if real.Status >= 500 {
			t.Errorf("%s %s: %v", method, path(nobody), real)
		}
	}
	constant := func(text string) func(world) string { return func(world) string { return text } }
	for _, route := range h.routes {
		if streams(route) || route.Anonymous || route.Pattern == "/api/v1/keys" || strings.HasSuffix(route.Pattern, "/leave") || strings.Contains(route.Pattern, "/revoke-") {
			continue
		}
		for _, object := range []string{"account", "sys_webhook", "sys_http_delivery", "sys_automation_run", "sys_member"} {
			if object != "account" && !strings.Contains(route.Pattern, "{object}") {
				continue
			}
			same(route.Method, func(w world) string {
				id := map[string]string{
					"account": w.record, "sys_webhook": w.webhook, "sys_http_delivery": w.delivery, "sys_automation_run": w.run, "sys_member": w.member,
				}[object]
				switch {
				case strings.HasSuffix(route.Pattern, "/undelete"):
					id = w.trashed
				case strings.Contains(route.Pattern, "/keys/"):
					id = w.key
				case strings.Contains(route.Pattern, "/deliveries/"):
					id = w.delivery
				case strings.Contains(route.Pattern, "/webhooks/"):
					id = w.webhook
				}
				name := "copy"
				if route.Permission == automation.PermissionManage {
					name = "nope" // flows are the default organization's, which this must not remove
				}
				return fill(route.Pattern, map[string]string{"object": object, "id": id, "name": name, "run": w.run, "type": "object"})
			}, func(w world) string {
				switch {
				case strings.HasSuffix(route.Pattern, "/webhooks/redeliver"):
					return fmt.Sprintf(`{"deliveryId":%q}`, w.delivery)
				case strings.HasSuffix(route.Pattern, "-member-role"), strings.HasSuffix(route.Pattern, "/remove-member"):
					return fmt.Sprintf(`{"memberId":%q,"memberIdOrEmail":%q,"role":"viewer"}`, w.member, w.member)
				}
				return `{}`
			})
		}
	}
	// What stands in bodies and queries.
	post := func(path, body string, id func(world) string) {
		t.Helper()
		same("POST", constant(path), func(w world) string { return strings.ReplaceAll(body, "$ID", id(w)) })
	}
	record := func(w world) string { return w.record }
	const objects = "/api/v1/data/account"
	post(objects+"/updateMany", `{"records":[{"id":"$ID","data":{"name":"x"}}]}`, record)
	post(objects+"/deleteMany", `{"ids":["$ID"]}`, record)
	post(objects+"/batch", `{"operation":"update","records":[{"id":"$ID","data":{"name":"x"}}],"options":{"atomic":true}}`, record)
	post(objects+"/batch", `{"operation":"delete","records":[{"id":"$ID"}]}`, record)
	post(objects+"/query", `{"where":{"id":"$ID"},"limit":1}`, record)
	post(objects+"/query", `{"where":{"parent":"$ID"},"expand":{"parent":{}}}`, record)
	post(objects+"/query", `{"where":{"id":"$ID"},"aggregations":[{"function":"count","alias":"n"},{"function":"max","field":"amount","alias":"m"}]}`, record)
	post(objects+"/query", `{"where":{"id":"$ID"},"trash":true}`, func(w world) string { return w.trashed })
	post(objects, `{"name":"x","parent":"$ID"}`, record)
	post("/api/v1/batch", `{"operations":[{"object":"account","action":"update","id":"$ID","data":{"name":"x"}}]}`, record)
	post("/api/v1/batch", `{"operations":[{"object":"account","action":"delete","id":"$ID"}]}`, record)
	post("/api/v1/deliveries/redeliver", `{"filter":{"refId":"$ID"},"dryRun":true}`, func(w world) string { return w.webhook })
	same("GET", func(w world) string { return objects + "?id=" + w.record }, constant(""))
	// A new record takes neither id, so that neither is told to be taken.
	for _, w := range []world{theirs, nobody} {
		made := h.ok(t, asker, "POST", objects, fmt.Sprintf(`{"id":%q,"name":"mine"}`, w.record))
		if made["id"] == w.record {
			t.Errorf("the id %q was chosen by a caller", w.record)
		}
		h.ok(t, asker, "DELETE", objects+"/"+made["id"].(string), "")
	}
}

// steady leaves out what differs between two answers that say the same.
func steady(body string) string {
	for pattern, with := range map[*regexp.Regexp]string{aTime: `"<time>"`, aDuration: `"durationMs":0`, aRun: "<run>"} {
		body = pattern.ReplaceAllString(body, with)
	}
	return body
}

// questions is all that one can ask without changing anything.
func (h *inhabited) questions(t *testing.T, asker string) map[string]answered {
	t.Helper()
	out := map[string]answered{}
	ask := func(method, path, body string) {
		a := h.call(t, asker, method, path, body)
		a.Body = steady(a.Body)
		out[method+" "+path+" "+body] = a
	}
	for _, route := range h.routes {
		if route.Method != "GET" || streams(route) || strings.Contains(route.Pattern, "/health") || strings.Contains(route.Pattern, "/ready") {
			continue
		}
		objects := []string{"account"}
		if strings.Contains(route.Pattern, "{object}") {
			objects = []string{
				"account", "sys_webhook", "sys_http_delivery", "sys_http_attempt", "sys_http_target", "sys_automation_run",
				"sys_user", "sys_member", "sys_organization", "sys_role",
			}
		}
		for _, object := range objects {
			ask("GET", fill(route.Pattern, map[string]string{"object": object, "name": "copy", "type": "object"}), "")
		}
	}
	for _, body := range []string{
		`{"limit":1}`, `{"search":"a"}`, `{"trash":true,"limit":100}`, `{"where":{"code":{"$startsWith":"c"}},"orderBy":[{"field":"amount","order":"desc"}]}`,
		`{"groupBy":["name"],"aggregations":[{"function":"count","alias":"n"}]}`,
		`{"aggregations":[{"function":"sum","field":"amount","alias":"s"},{"function":"count_distinct","field":"code","alias":"d"}]}`,
		`{"expand":{"parent":{},"owner_id":{},"organization_id":{}}}`,
	} {
		ask("POST", "/api/v1/data/account/query", body)
	}
	return out
}

// unmoved lets one organization work and sees whether another one's answers
// change.
func (h *inhabited) unmoved(t *testing.T, watcher, worker string, random *rand.Rand) {
	t.Helper()
	hook := h.ok(t, worker, "POST", "/api/v1/data/sys_webhook", fmt.Sprintf(`{"name":"w%d","triggers":["create","update"],"url":%q}`, random.Uint32(), h.receiver))
	before := h.questions(t, watcher)
	var records []string
	for n := range 25 {
		pick := func() string {
			if len(records) == 0 {
				return "none"
			}
			return records[random.IntN(len(records))]
		}
		switch random.IntN(7) {
		case 0, 1, 2:
			body := fmt.Sprintf(`{"name":"a%d","code":"c%d-%d","amount":%d}`, random.IntN(9), n, random.Uint32(), random.IntN(1000))
			records = append(records, h.ok(t, worker, "POST", "/api/v1/data/account", body)["id"].(string))
		case 3:
			h.call(t, worker, "PATCH", "/api/v1/data/account/"+pick(), fmt.Sprintf(`{"amount":%d,"parent":%q}`, random.IntN(1000), pick()))
		case 4:
			h.call(t, worker, "DELETE", "/api/v1/data/account/"+pick(), "")
		case 5:
			h.call(t, worker, "POST", "/api/v1/automation/copy/trigger", `{}`)
		case 6:
			h.call(t, worker, "POST", "/api/v1/auth/organization/invite-member", fmt.Sprintf(`{"email":"p%d@x.example","role":"viewer"}`, n))
		}
	}
	h.quiet(t, worker)
	after := h.questions(t, watcher)
	h.ok(t, worker, "DELETE", "/api/v1/data/sys_webhook/"+hook["id"].(string), "")
	if len(before) < 40 {
		t.Errorf("only %d questions", len(before))
	}
	for question, answer := range before {
		if diff := cmp.Diff(answer, after[question]); diff != "" {
			t.Errorf("%s changes with another organization's work:\n%s", question, diff)
		}
	}
}

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
