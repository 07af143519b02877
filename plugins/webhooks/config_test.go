package webhooks

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/messaging/messagingtest"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// quick retries soon, so that tests see retries.
const quick = `{"retryPolicy":{"maxRetries":10,"initialDelayMs":100,"maxDelayMs":1000,"backoffStrategy":"fixed"}}`

// one returns the only delivery.
func (n *node) one(t testing.TB) deliveryRow {
	t.Helper()
	n.drain(t)
	rows := n.deliveries(t)
	if len(rows) != 1 {
		t.Fatalf("%d rows: %+v\n%s", len(rows), rows, n.log)
	}
	return rows[0]
}

func (n *node) target(t testing.TB, id string) *messaging.Target {
	t.Helper()
	target, err := n.outbox.Target(t.Context(), messaging.SourceWebhook, id, "")
	fatal(t, err)
	if target == nil {
		t.Fatalf("webhook %s has no target", id)
	}
	return target
}

func signature(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

func TestCase_CFG_01_switched_off_and_on(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		for _, change := range []struct {
			off, on data.Record
			reason  string
		}{
			{data.Record{"active": false}, data.Record{"active": true}, "the webhook is inactive"},
			{data.Record{"paused": true}, data.Record{"paused": false}, "the webhook is paused"},
		} {
			r.Handle("/in", messagingtest.Status(500, ""), messagingtest.Status(200, ""))
			id := n.hook(t, data.Record{"name": "w", "url": r.URL + "/in", "definition_json": quick})
			n.update(t, ObjectName, id, change.off)
			if target := n.target(t, id); target.State != messaging.TargetHeld || target.Reason != change.reason {
				t.Fatalf("target %+v", target)
			}
			n.create(t, "account", data.Record{"name": "a"})
			n.drain(t)
			rows := n.deliveries(t)
			matched := 0
			for _, d := range rows {
				if d.RefID != id {
					continue
				}
				matched++
				if d.Status != "pending" || d.Attempts != 0 {
					t.Errorf("row %+v of a held target", d)
				}
			}
			if want := map[bool]int{true: 1, false: 0}[change.off["paused"] == true]; matched != want {
				t.Errorf("%s: %d rows, want %d", change.reason, matched, want)
			}
			n.update(t, ObjectName, id, change.on)
			n.create(t, "account", data.Record{"name": "b"})
			n.drain(t)
			for _, d := range n.deliveries(t) {
				if d.RefID == id {
					n.settled(t, d.ID, messaging.StatusSuccess)
				}
			}
			fatal(t, n.engine.Delete(system(t), ObjectName, id, data.Match{}))
		}
	})
}

func TestCase_CFG_01_deleted_webhooks_send_nothing(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		id := n.hook(t, data.Record{"url": r.URL, "paused": true})
		n.create(t, "account", data.Record{"name": "a"})
		d := n.one(t)
		fatal(t, n.engine.Delete(system(t), ObjectName, id, data.Match{}))
		target := n.target(t, id)
		if target.State != messaging.TargetGone || target.Reason != "the webhook was deleted" || target.Secret != nil {
			t.Errorf("target %+v", target)
		}
		_, err := n.plugin.service.Redeliver(system(t), d.ID, false)
		var ineligible *messaging.NotEligibleError
		if !errors.As(err, &ineligible) {
			t.Errorf("redeliver: %v", err)
		}
		if got := r.Requests(); len(got) != 0 {
			t.Errorf("%d requests", len(got))
		}
	})
}

func TestCase_CFG_04_rotation_kills_no_waiting_row(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		id := n.hook(t, data.Record{"url": r.URL, "paused": true, "signing_secret": "old", "managed_by": "package"})
		n.create(t, "account", data.Record{"name": "a"})
		d := n.one(t)
		who := identity.With(t.Context(), identity.Principal{UserID: "u1"})
		secret, err := n.plugin.service.Rotate(who, id, time.Hour)
		fatal(t, err)
		if !strings.HasPrefix(secret, "whsec_") || len(secret) != 50 {
			t.Errorf("secret of %d bytes", len(secret))
		}
		n.update(t, ObjectName, id, data.Record{"paused": false, "label": "later"})
		n.settled(t, d.ID, messaging.StatusSuccess)
		req := r.Requests()[0]
		if req.Header.Get("X-Objectstack-Signature") != signature(secret, req.Body) ||
			req.Header.Get("X-Objectstack-Signature-Previous") != signature("old", req.Body) {
			t.Errorf("headers %v", req.Header)
		}
		stored, err := n.engine.Get(system(t), ObjectName, id)
		fatal(t, err)
		if stored["customized"] != true || stored["updated_by"] != nil {
			t.Errorf("customized %v, updated_by %v", stored["customized"], stored["updated_by"])
		}
		// Writing the secret by hand ends the old one at once.
		n.update(t, ObjectName, id, data.Record{"signing_secret": "new"})
		_, err = n.plugin.service.Redeliver(system(t), d.ID, false)
		fatal(t, err)
		got, err := waitFor(t, r, 2)
		fatal(t, err)
		if last := got[1]; last.Header.Get("X-Objectstack-Signature") != signature("new", last.Body) ||
			last.Header.Get("X-Objectstack-Signature-Previous") != "" || string(last.Body) != string(req.Body) {
			t.Errorf("headers %v", last.Header)
		}
		if _, err := n.plugin.service.Rotate(who, "nope", 0); !errors.Is(err, ErrNotFound) {
			t.Errorf("unknown webhook: %v", err)
		}
	})
}

func TestCase_CFG_06_parked_rows_are_never_sent_unsigned(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		id := n.hook(t, data.Record{"url": r.URL, "signing_secret": "s", "headers_secret": `{"X-Team":"crm"}`})
		exec := func(query string) {
			t.Helper()
			_, err := n.db.Write(t.Context()).ExecContext(t.Context(), query)
			fatal(t, err)
		}
		exec(`CREATE TABLE kept AS SELECT * FROM sys_secret`)
		exec(`UPDATE sys_secret SET sealed = 'x' || sealed`)
		n.create(t, "account", data.Record{"name": "a"})
		d := n.one(t)
		if d.Status != "dead" || d.Attempts != 0 || d.Error != "signing secret is set but cannot be read" {
			t.Fatalf("row %+v", d)
		}
		if _, err := n.plugin.service.Redeliver(system(t), d.ID, false); !errors.Is(err, messaging.ErrNeverSent) {
			t.Errorf("unreadable secret: %v", err)
		}
		// The secret comes back, the headers do not.
		exec(`UPDATE sys_secret SET sealed = (SELECT sealed FROM kept WHERE kept.id = sys_secret.id) WHERE field_name = 'signing_secret'`)
		if _, err := n.plugin.service.Redeliver(system(t), d.ID, false); !errors.Is(err, messaging.ErrNeverSent) {
			t.Errorf("unreadable headers: %v", err)
		}
		exec(`UPDATE sys_secret SET sealed = (SELECT sealed FROM kept WHERE kept.id = sys_secret.id)`)
		again, err := n.plugin.service.Redeliver(system(t), d.ID, false)
		fatal(t, err)
		if again.Status != messaging.StatusPending {
			t.Errorf("status %s", again.Status)
		}
		n.settled(t, d.ID, messaging.StatusSuccess)
		req := r.Requests()[0]
		if req.Header.Get("X-Objectstack-Signature") != signature("s", req.Body) || req.Header.Get("X-Team") != "crm" {
			t.Errorf("headers %v", req.Header)
		}
		_ = id
	})
}

func TestCase_CFG_07_rows_of_other_organizations_are_not_found(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		in := func(org string) context.Context {
			return identity.With(t.Context(), identity.Principal{System: true, OrganizationID: org})
		}
		made, err := n.engine.Create(in("o1"), ObjectName, data.Record{"name": "w", "url": r.URL, "object_name": "account", "triggers": "create"})
		fatal(t, err)
		_, err = n.engine.Create(in("o1"), "account", data.Record{"name": "a"})
		fatal(t, err)
		d := n.one(t)
		n.settled(t, d.ID, messaging.StatusSuccess)
		if _, err := n.plugin.service.Redeliver(in("o2"), d.ID, false); !errors.Is(err, messaging.ErrNotFound) {
			t.Errorf("redeliver: %v", err)
		}
		if _, err := n.plugin.service.Rotate(in("o2"), made.ID, 0); !errors.Is(err, ErrNotFound) {
			t.Errorf("rotate: %v", err)
		}
		if _, err := n.plugin.service.Test(in("o2"), made.ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("test: %v", err)
		}
		if _, err := n.plugin.service.Redeliver(in("o1"), d.ID, false); err != nil {
			t.Errorf("redeliver of one's own: %v", err)
		}
		// Nor does it show whether the foreign webhook is still there.
		fatal(t, n.engine.Delete(in("o1"), ObjectName, made.ID, data.Match{}))
		if _, err := n.plugin.service.Redeliver(in("o2"), d.ID, false); !errors.Is(err, messaging.ErrNotFound) {
			t.Errorf("redeliver of a deleted webhook's row: %v", err)
		}
	})
}

func TestCase_CFG_08_new_URL_begins_a_new_streak(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		r.Handle("/old", messagingtest.Status(404, ""))
		id := n.hook(t, data.Record{"url": r.URL + "/old"})
		n.create(t, "account", data.Record{"name": "a"})
		n.settled(t, n.one(t).ID, messaging.StatusDead)
		if n.target(t, id).FailingSince.IsZero() {
			t.Fatal("no streak began")
		}
		fatal(t, n.plugin.health.refresh(t.Context()))
		stored, err := n.engine.Get(system(t), ObjectName, id)
		fatal(t, err)
		if since, _ := stored["failing_since"].(string); since != event.FormatTime(n.target(t, id).FailingSince) {
			t.Errorf("failing_since %v", stored["failing_since"])
		}
		n.update(t, ObjectName, id, data.Record{"label": "same URL"})
		if n.target(t, id).FailingSince.IsZero() {
			t.Error("another column reset the streak")
		}
		n.update(t, ObjectName, id, data.Record{"url": r.URL + "/new"})
		target := n.target(t, id)
		stored, err = n.engine.Get(system(t), ObjectName, id)
		fatal(t, err)
		if !target.FailingSince.IsZero() || target.State != messaging.TargetActive || stored["failing_since"] != nil {
			t.Errorf("target %+v, failing_since %v", target, stored["failing_since"])
		}
	})
}

func TestHealthIsWrittenToTheWebhook(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		id := n.hook(t, data.Record{"url": r.URL})
		n.create(t, "account", data.Record{"name": "a"})
		n.settled(t, n.one(t).ID, messaging.StatusSuccess)
		fatal(t, n.plugin.health.refresh(t.Context()))
		stored, err := n.engine.Get(system(t), ObjectName, id)
		fatal(t, err)
		success := n.target(t, id).LastSuccessAt
		if success.IsZero() || stored["last_success_at"] != event.FormatTime(success) || stored["failing_since"] != nil {
			t.Errorf("last_success_at %v, want %v; failing_since %v", stored["last_success_at"], success, stored["failing_since"])
		}
	})
}

func TestGoneSwitchesOffWithTheReason(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		r.Handle("/in", messagingtest.Status(410, ""), messagingtest.Status(200, ""))
		id := n.hook(t, data.Record{"url": r.URL + "/in", "managed_by": "package", "definition_json": `{"isActive":true}`})
		n.create(t, "account", data.Record{"name": "a"})
		n.settled(t, n.one(t).ID, messaging.StatusDead)
		n.drain(t)
		stored, err := n.engine.Get(system(t), ObjectName, id)
		fatal(t, err)
		if stored["active"] != false || stored["disabled_reason"] != "the receiver answered 410 Gone" ||
			stored["customized"] != false || stored["definition_json"] != `{"isActive":false}` {
			t.Errorf("webhook %v", stored)
		}
		n.create(t, "account", data.Record{"name": "not matched"})
		n.one(t)
		n.update(t, ObjectName, id, data.Record{"active": true})
		stored, err = n.engine.Get(system(t), ObjectName, id)
		fatal(t, err)
		if stored["disabled_reason"] != nil || n.target(t, id).State != messaging.TargetActive {
			t.Errorf("disabled_reason %v, target %+v", stored["disabled_reason"], n.target(t, id))
		}
		n.create(t, "account", data.Record{"name": "b"})
		n.drain(t)
		n.settled(t, n.deliveries(t)[1].ID, messaging.StatusSuccess)
	})
}

// A webhook that was switched on again before the news of its hold was read
// stays on.
func TestOldNewsDoNotSwitchOff(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		id := n.hook(t, data.Record{"url": r.URL})
		fatal(t, n.events.Append(t.Context(), &event.Event{
			Type: messaging.EventTargetHeld, Object: "sys_http_target", RecordID: id,
			After: []byte(`{"source":"webhook","targetKey":"` + id + `","reason":"old"}`),
		}))
		n.drain(t)
		stored, err := n.engine.Get(system(t), ObjectName, id)
		fatal(t, err)
		if stored["active"] != true {
			t.Errorf("webhook %v", stored)
		}
	})
}

// allowed grants what it lists; everything about records is open.
type allowed map[string]bool

func (allowed) Can(context.Context, identity.Operation, string) error { return nil }

func (a allowed) Has(ctx context.Context, permission string) error {
	if !identity.From(ctx).Authenticated() {
		return identity.ErrUnauthenticated
	}
	if a[permission] {
		return nil
	}
	return &identity.DeniedError{Permission: permission}
}

func TestWritingWebhooksIsAPermissionOfItsOwn(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		rights := allowed{}
		n := newNode(t, db, nodeConfig{authorizer: rights, still: true})
		user := identity.With(t.Context(), identity.Principal{UserID: "u1"})
		values := data.Record{"name": "w", "url": "https://recv.test/", "object_name": "account", "triggers": "create"}
		if _, err := n.engine.Create(user, ObjectName, values); !data.IsCode(err, data.CodePermissionDenied) {
			t.Errorf("without: %v", err)
		}
		if _, err := n.engine.Create(t.Context(), ObjectName, values); !data.IsCode(err, data.CodeUnauthenticated) {
			t.Errorf("anonymous: %v", err)
		}
		rights[PermissionManage] = true
		made, err := n.engine.Create(user, ObjectName, values)
		fatal(t, err)
		delete(rights, PermissionManage)
		if _, err := n.engine.Update(user, ObjectName, made.ID, data.Record{"active": false}, data.Match{}); !data.IsCode(err, data.CodePermissionDenied) {
			t.Errorf("update: %v", err)
		}
		if err := n.engine.Delete(user, ObjectName, made.ID, data.Match{}); !data.IsCode(err, data.CodePermissionDenied) {
			t.Errorf("delete: %v", err)
		}
		if _, err := n.engine.UpdateWhere(system(t), ObjectName, data.Filter{}, data.Record{"active": false}); !data.IsCode(err, data.CodeInvalidRequest) {
			t.Errorf("predicate write: %v", err)
		}
	})
}

func TestReadonlyColumnsAndCustomized(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		n := newNode(t, db, nodeConfig{authorizer: allowed{PermissionManage: true}, still: true})
		user := identity.With(t.Context(), identity.Principal{UserID: "u1"})
		made, err := n.engine.Create(user, ObjectName, data.Record{"name": "w", "url": "https://recv.test/", "managed_by": "package", "disabled_reason": "x"})
		fatal(t, err)
		if made.Record["managed_by"] != "admin" || made.Record["disabled_reason"] != nil || made.Record["method"] != "post" ||
			made.Record["active"] != true || made.Record["paused"] != false || made.Record["definition_json"] != "{}" || made.Record["customized"] != false {
			t.Errorf("record %v", made.Record)
		}
		if len(made.Dropped) != 1 || strings.Join(made.Dropped[0].Fields, " ") != "managed_by disabled_reason" {
			t.Errorf("dropped %+v", made.Dropped)
		}
		packaged := n.hook(t, data.Record{"name": "p", "url": "https://recv.test/", "managed_by": "package"})
		for _, step := range []struct {
			who  context.Context
			want bool
		}{{system(t), false}, {user, true}, {system(t), true}} {
			_, err := n.engine.Update(step.who, ObjectName, packaged, data.Record{"label": "x"}, data.Match{})
			fatal(t, err)
			stored, err := n.engine.Get(system(t), ObjectName, packaged)
			fatal(t, err)
			if stored["customized"] != step.want {
				t.Errorf("customized %v, want %v", stored["customized"], step.want)
			}
		}
	})
}

func TestStoredSecretsMustFitANewDefinition(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		id := n.hook(t, data.Record{"url": r.URL, "signing_secret": "whsec_not base64!", "definition_json": `{"authentication":{"type":"bearer","credentials":"t0ken"}}`})
		for definition, ok := range map[string]bool{
			`{"authentication":{"type":"bearer"},"timeoutMs":2000}`:                                   true,
			`{"authentication":{"type":"basic"}}`:                                                     false,
			`{"authentication":{"type":"api-key"}}`:                                                   true,
			`{"authentication":{"type":"basic","credentials":{"username":"u","password":"p"}}}`:       true,
			`{"authentication":{"type":"none"},"signature":"both"}`:                                   false,
			`{"authentication":{"type":"none"},"signature":"both","secret":"whsec_c2VjcmV0c2VjcmV0"}`: true,
		} {
			_, err := n.engine.Update(system(t), ObjectName, id, data.Record{"definition_json": definition}, data.Match{})
			if (err == nil) != ok || err != nil && !data.IsCode(err, data.CodeValidationFailed) {
				t.Errorf("%s: %v", definition, err)
			}
			n.update(t, ObjectName, id, data.Record{"signing_secret": "whsec_not base64!", "definition_json": `{"authentication":{"type":"bearer","credentials":"t0ken"}}`})
		}
	})
}
