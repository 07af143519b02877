package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/objecthost/objecthost/storage/storagetest"
)

// TestAdministrativeActsAreLogged does what an operator does and reads the log,
// which shows an organization its own acts, to those who may read it.
func TestAdministrativeActsAreLogged(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		h := inhabit(t, dsn)
		acme := h.administrator(t, "acme")
		hook := h.ok(t, acme, "POST", "/api/v1/data/sys_webhook", `{"name":"hook","url":"`+h.receiver+`","signing_secret":"a secret that must not be told"}`)["id"].(string)
		h.ok(t, acme, "PATCH", "/api/v1/data/sys_webhook/"+hook, `{"description":"told nowhere"}`)
		h.ok(t, acme, "POST", "/api/v1/webhooks/"+hook+"/rotate-secret", `{}`)
		h.ok(t, acme, "POST", "/api/v1/data/account", `{"name":"no administrative act"}`)
		h.ok(t, acme, "POST", "/api/v1/auth/organization/create-role", `{"role":"reader","permissions":["data:read"]}`)
		key := h.ok(t, acme, "POST", "/api/v1/keys", `{"scopes":["data:read"]}`)["data"].(map[string]any)
		h.ok(t, acme, "DELETE", "/api/v1/keys/"+key["id"].(string), "")
		h.ok(t, acme, "DELETE", "/api/v1/data/sys_webhook/"+hook, "")
		if a := h.call(t, acme, "POST", "/api/v1/webhooks/nope/rotate-secret", `{}`); a.Status != 404 {
			t.Errorf("rotate nothing: %v", a)
		}
		h.ok(t, h.root, "POST", "/api/v1/automation", accessFlow)
		h.ok(t, h.root, "PUT", "/api/v1/meta/object/ticket", `{"name":"ticket","label":"Ticket","sharingModel":"private","fields":{"name":{"type":"text"}}}`)

		entries := func(credential string) (actions []string, all string) {
			list := h.ok(t, credential, "GET", "/api/v1/data/sys_audit_log?sort=created_at", "")["records"].([]any)
			for _, entry := range list {
				e := entry.(map[string]any)
				actions = append(actions, fmt.Sprint(e["action"]))
				if e["ip"] != "127.0.0.1" && e["ip"] != nil || e["user_id"] == nil && e["key_id"] == nil {
					t.Errorf("who acted, and from where: %v", e)
				}
				all += fmt.Sprintln(e)
			}
			slices.Sort(actions)
			return actions, all
		}
		got, all := entries(acme)
		if diff := cmp.Diff([]string{
			"key.create", "key.revoke", "member.add", "role.put", "session.begin", "sys_webhook.create", "sys_webhook.delete",
			"sys_webhook.update", "sys_webhook.update", "webhooks.rotate",
		}, got); diff != "" {
			t.Errorf("acme (-want +got):\n%s", diff)
		}
		for _, secret := range []string{"must not be told", "told nowhere", "osk_", "correct horse", "whsec_"} {
			if strings.Contains(strings.ReplaceAll(all, fmt.Sprint(key["prefix"]), ""), secret) {
				t.Errorf("the log tells %q:\n%s", secret, all)
			}
		}
		got, _ = entries(h.root)
		if diff := cmp.Diff([]string{"automation.manage", "metadata.save", "organization.create", "user.create"}, got); diff != "" {
			t.Errorf("default (-want +got):\n%s", diff)
		}
		reader := h.key(t, acme, "data:read")
		for _, path := range []string{"/api/v1/data/sys_audit_log", "/api/v1/data/sys_audit_log/x"} {
			if a := h.call(t, reader, "GET", path, ""); a.Status != 403 {
				t.Errorf("%s without audit.read: %v", path, a)
			}
		}
		if a := h.call(t, reader, "GET", "/api/v1/meta/object/sys_audit_log", ""); a.Status != 404 {
			t.Errorf("its definition without audit.read: %v", a)
		}
		for _, method := range []string{"PATCH", "DELETE"} {
			if a := h.call(t, acme, method, "/api/v1/data/sys_audit_log/x", `{}`); a.Status != 405 {
				t.Errorf("%s an entry: %v", method, a)
			}
		}
	})
}
