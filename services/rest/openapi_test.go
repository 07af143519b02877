package rest

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

func (h *host) openAPI(key string) *openapi3.T {
	h.t.Helper()
	w := h.as(key, "GET", openAPIPath, "")
	if w.Code != 200 {
		h.t.Fatalf("%d %s", w.Code, w.Body)
	}
	doc, err := openapi3.NewLoader().LoadFromData(w.Body.Bytes())
	if err != nil {
		h.t.Fatal(err)
	}
	return doc
}

// TestOpenAPIIsValid has a validator look at the whole document, and compares it
// with the routes.
func TestOpenAPIIsValid(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		doc := h.openAPI(h.key)
		if err := doc.Validate(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/api/v1/data/account", "/api/v1/data/account/{id}", "/api/v1/data/note/{id}/undelete", "/api/v1/batch", "/api/v1/meta/{type}/{name}", "/api/v1/health"} {
			if doc.Paths.Find(path) == nil {
				t.Errorf("%s is missing", path)
			}
		}
		ledger := doc.Paths.Find("/api/v1/data/ledger")
		if ledger.Get == nil || ledger.Post != nil || doc.Paths.Find("/api/v1/data/account/{id}/undelete") != nil {
			t.Error("operations that the objects are closed to are described")
		}
		for _, route := range h.server.allRoutes() {
			if strings.Contains(route.Pattern, "{object}") && strings.HasPrefix(route.Pattern, dataBase) {
				continue
			}
			if item := doc.Paths.Find(route.Pattern); item == nil || item.GetOperation(route.Method) == nil {
				t.Errorf("%s %s is not described", route.Method, route.Pattern)
			}
		}
		name := doc.Components.Schemas["input.account"].Value.Properties["name"].Value
		if *name.MaxLength != 120 || !name.Type.Is("string") {
			t.Errorf("name is %+v", name)
		}
		if doc.Components.Schemas["input.account"].Value.Properties["created_at"] != nil {
			t.Error("a readonly field is among those that are taken")
		}
		// What a caller may not know of, is not in it; what was defined since, is.
		h.get(201, h.do("PUT", "/api/v1/meta/object/ticket", ticket))
		if h.openAPI(h.key).Paths.Find("/api/v1/data/ticket") == nil {
			t.Error("a new object is missing")
		}
		few := h.openAPI(makeKey(t, h.auth, "object:contact:list"))
		if few.Paths.Find("/api/v1/data/account") != nil || few.Paths.Find("/api/v1/data/contact") == nil {
			t.Error("the document does not follow the caller's permissions")
		}
		h.get(401, h.as("", "GET", openAPIPath, ""))
	})
}

// TestAnswersFitTheOpenAPI compares requests and answers with the document.
func TestAnswersFitTheOpenAPI(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		doc := h.openAPI(h.key)
		router, err := gorillamux.NewRouter(doc)
		if err != nil {
			t.Fatal(err)
		}
		id := h.create(`{"name":"Acme","code":"A","industry":"retail","annual_revenue":1.5}`)
		for _, c := range []struct {
			method, path, body string
			status             int
		}{
			{"GET", "/api/v1/data/account?top=5&sort=-name&cursor=&filter=%5B%22name%22,%22=%22,%22Acme%22%5D", "", 200},
			{"GET", "/api/v1/data/account/" + id + "?select=name", "", 200},
			{"POST", "/api/v1/data/account", `{"name":"B","active":false,"industry":null}`, 201},
			{"POST", "/api/v1/data/account", `{"industry":"retail"}`, 400},
			{"POST", "/api/v1/data/account", `{"name":"C","code":"A"}`, 409},
			{"POST", "/api/v1/data/account/createMany", `[{"name":"D"}]`, 201},
			{"POST", "/api/v1/data/account/query", `{"where":{"active":true},"orderBy":[{"field":"name","order":"desc"}],"limit":1}`, 200},
			{"POST", "/api/v1/data/account/" + id + "/clone", `{"overrides":{"name":"E"}}`, 201},
			{"PATCH", "/api/v1/data/account/" + id, `{"annual_revenue":2}`, 200},
			{"DELETE", "/api/v1/data/account/" + id, "", 200},
			{"DELETE", "/api/v1/data/account/" + id, "", 404},
			{"GET", "/api/v1/data/account/export?format=json", "", 200},
			{"GET", "/api/v1/meta/object", "", 200},
			{"GET", "/api/v1/packages", "", 200},
			{"GET", "/api/v1/packages/nobody", "", 404},
			{"GET", "/api/v1/health", "", 200},
		} {
			h.fits(router, c.method, c.path, c.body, c.status)
		}
	})
}

func (h *host) fits(router routers.Router, method, path, body string, status int) {
	h.t.Helper()
	r := httptest.NewRequestWithContext(h.t.Context(), method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	route, params, err := router.FindRoute(r)
	if err != nil {
		h.t.Errorf("%s %s: %v", method, path, err)
		return
	}
	input := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true},
	}
	if err := openapi3filter.ValidateRequest(h.t.Context(), input); err != nil {
		h.t.Errorf("%s %s: the request does not fit: %v", method, path, err)
	}
	w := h.do(method, path, body)
	if w.Code != status {
		h.t.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	header := http.Header{"Content-Type": slices.Clone(w.Header()["Content-Type"])}
	answer := &openapi3filter.ResponseValidationInput{RequestValidationInput: input, Status: w.Code, Header: header, Options: input.Options}
	answer.SetBodyBytes(bytes.Clone(w.Body.Bytes()))
	if err := openapi3filter.ValidateResponse(h.t.Context(), answer); err != nil {
		h.t.Errorf("%s %s: the answer does not fit: %v", method, path, err)
	}
}
