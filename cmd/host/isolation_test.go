package main

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/objecthost/objecthost/services/automation"
	"github.com/objecthost/objecthost/storage/storagetest"
)

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
		refused := 0
		for _, route := range h.routes {
			if !h.wide[route.Permission] {
				continue
			}
			if got := h.call(t, a, route.Method, fill(route.Pattern, nil), "{}"); got.Status != 403 {
				t.Errorf("%s %s, which reaches over organizations, for the owner of one: %v", route.Method, route.Pattern, got)
			}
			refused++
		}
		if refused < 10 {
			t.Errorf("only %d routes reach over organizations", refused)
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
		if streams(route) || route.Anonymous || route.Pattern == "/api/v1/keys" || route.Pattern == "/metrics" || strings.HasSuffix(route.Pattern, "/leave") || strings.Contains(route.Pattern, "/revoke-") {
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
		if route.Method != "GET" || streams(route) || h.wide[route.Permission] || strings.Contains(route.Pattern, "/health") || strings.Contains(route.Pattern, "/ready") {
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
