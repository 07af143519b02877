package rest

import (
	"net/http"
	"strings"
	"testing"
)

func TestDiscovery(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		want := `{
			"version":"1.2.3","name":"objecthost","apiName":"objecthost","environment":"development",
			"routes":{"data":"/api/v1/data","metadata":"/api/v1/meta","auth":"/api/v1/auth","automation":"/api/v1/automation","ui":"/api/v1/ui","packages":"/api/v1/packages","notifications":"/api/v1/notifications","i18n":"/api/v1/i18n"},
			"locale":{"default":"en","supported":["en"],"timezone":"UTC"},
			"scoping":{"enabled":false,"resolution":"auto","scoped":false},
			"services":{
				"metadata":{"enabled":true,"status":"available","handlerReady":true,"route":"/api/v1/meta"},
				"data":{"enabled":true,"status":"available","handlerReady":true,"route":"/api/v1/data"},
				"auth":{"enabled":true,"status":"degraded","handlerReady":false,"message":"API keys only: no sign-in routes are mounted"},
				"realtime":{"enabled":false,"status":"degraded","handlerReady":false,"message":"In-process only: no HTTP routes are mounted"},
				"automation":NONE,"webhook.autoEnqueuer":NONE,"messaging":NONE,"notification":{"enabled":true,"status":"available","handlerReady":true,"route":"/api/v1/notifications"},"i18n":{"enabled":true,"status":"available","handlerReady":true,"route":"/api/v1/i18n"},"analytics":NONE,
				"ui":{"enabled":true,"status":"available","handlerReady":true,"route":"/api/v1/ui"},"packages":{"enabled":true,"status":"available","handlerReady":true,"route":"/api/v1/packages"},
				"search":NONE,"file-storage":NONE,"ai":NONE,"cache":NONE,"queue":NONE,"job":NONE},
			"capabilities":{"automation":NO,"notifications":{"enabled":true},"i18n":{"enabled":true},"analytics":NO,"ai":NO,"files":NO,"search":NO,
				"transactionalBatch":{"enabled":true},"websockets":NO,"chunkedUpload":NO,"comments":NO,"cron":NO,"export":{"enabled":true}}}`
		want = strings.ReplaceAll(want, "NONE", `{"enabled":false,"status":"unavailable","handlerReady":false,"message":"Not part of this host"}`)
		want = strings.ReplaceAll(want, "NO", `{"enabled":false}`)
		h.same(h.get(200, h.as("", "GET", "/api/v1/discovery", "")), want)
		h.same(h.get(200, h.as("a wrong key", "GET", "/.well-known/objectstack", "")), `{"success":true,"data":`+want+`}`)
	})
}

func TestDiscoveryFollowsRoutes(t *testing.T) {
	t.Parallel()
	nothing := func(http.ResponseWriter, *http.Request) {}
	p := setupPlain(t, Config{},
		testRoute("GET", "/api/v1/automation", nothing), testRoute("POST", "/api/v1/batch", nothing),
		testRoute("GET", "/api/v1/notificationsX", nothing), testRoute("POST", "/api/v1/webhooks/redeliver", nothing))
	p.Server.names = func() []string { return []string{"automation", "messaging", "notification"} }
	d := p.discover()
	if got := d.Services["automation"]; got != (discoveredService{Enabled: true, Status: "available", HandlerReady: true, Route: "/api/v1/automation"}) {
		t.Errorf("automation %+v", got)
	}
	if got := d.Services["notification"]; got.Enabled || got.HandlerReady || got.Route != "" {
		t.Errorf("notification %+v", got)
	}
	if !d.Capabilities["automation"].Enabled || !d.Capabilities["transactionalBatch"].Enabled || d.Capabilities["notifications"].Enabled {
		t.Errorf("capabilities %+v", d.Capabilities)
	}
	if d.Routes["webhooks"] != "/api/v1/webhooks" || d.Routes["notifications"] != "" {
		t.Errorf("routes %v", d.Routes)
	}
}
