package rest

import "testing"

func TestPackages(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		h.server.state = func(id string) (string, bool) { return "disabled", id == "com.example.books" }
		crm := `{"manifest":{"id":"com.example.crm","name":"com.example.crm","version":"2.1.0","type":"plugin","scope":"project","objects":["account","contact"]},
			"status":"installed","enabled":true,"writable":false}`
		books := `{"manifest":{"id":"com.example.books","name":"com.example.books","version":"0.0.0","type":"plugin","scope":"project","objects":["ledger"]},
			"status":"disabled","enabled":false,"writable":false}`
		h.same(h.get(200, h.do("GET", "/api/v1/packages", "")), `{"success":true,"data":{"packages":[`+crm+`,`+books+`],"total":2}}`)
		h.same(h.get(200, h.do("GET", "/api/v1/packages?enabled=false", "")), `{"success":true,"data":{"packages":[`+books+`],"total":1}}`)
		h.same(h.get(200, h.do("GET", "/api/v1/packages?status=error", "")), `{"success":true,"data":{"packages":[],"total":0}}`)
		h.same(h.get(200, h.do("GET", "/api/v1/packages/com.example.crm", "")), `{"success":true,"data":{"package":`+crm+`}}`)
		h.same(h.get(404, h.do("GET", "/api/v1/packages/nobody", "")), `{"success":false,"error":{"code":"RESOURCE_NOT_FOUND","message":"Package nobody not found"}}`)
		h.get(401, h.as("", "GET", "/api/v1/packages", ""))
	})
}
