package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/storage"
)

// TestRefusalBodies has every row of the protocol's table of codes that the data
// and metadata API can answer, with its exact body.
func TestRefusalBodies(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		acme, m := h.seed()
		h.get(201, h.do("POST", "/api/v1/data/contact", `{"name":"c","account":"`+acme+`"}`))
		reader := makeKey(t, h.auth, "data:read")
		account := "/api/v1/data/account"
		for name, test := range map[string]struct {
			w      *httptest.ResponseRecorder
			status int
			body   string
		}{
			"anonymous": {h.as("", "GET", account+"?", ""), 401,
				`{"error":"UNAUTHENTICATED","code":"UNAUTHENTICATED","message":"Authentication is required to access this endpoint."}`},
			"wrong key": {h.as("osk_nope", "GET", account, ""), 401,
				`{"error":"UNAUTHENTICATED","code":"UNAUTHENTICATED","message":"Authentication is required to access this endpoint."}`},
			"anonymous, unknown object": {h.as("", "GET", "/api/v1/data/no_such_object", ""), 401,
				`{"error":"UNAUTHENTICATED","code":"UNAUTHENTICATED","message":"Authentication is required to access this endpoint."}`},
			"anonymous metadata": {h.as("", "GET", "/api/v1/meta/object/account", ""), 401,
				`{"error":"UNAUTHENTICATED","code":"UNAUTHENTICATED","message":"Authentication is required to access this endpoint."}`},
			"denied": {h.as(reader, "POST", account, `{"name":"x"}`), 403,
				`{"error":"You are not permitted to create records of 'account'.","code":"PERMISSION_DENIED","object":"account"}`},
			"unknown object": {h.do("GET", "/api/v1/data/no_such_object?", ""), 404,
				`{"error":"Object 'no_such_object' is not registered","code":"OBJECT_NOT_FOUND","object":"no_such_object"}`},
			"unknown object, create": {h.do("POST", "/api/v1/data/no_such_object", "{}"), 404,
				`{"error":"Object 'no_such_object' is not registered","code":"OBJECT_NOT_FOUND","object":"no_such_object"}`},
			"unknown record, get": {h.do("GET", account+"/doesnotexist", ""), 404,
				`{"error":"Record doesnotexist not found in account","code":"RECORD_NOT_FOUND","object":"account"}`},
			"unknown record, update": {h.do("PATCH", account+"/doesnotexist", `{"name":"x"}`), 404,
				`{"error":"Record doesnotexist not found in account","code":"RECORD_NOT_FOUND","object":"account"}`},
			"unknown metadata": {h.do("GET", "/api/v1/meta/object/no_such_object", ""), 404,
				`{"error":"Metadata item object/no_such_object not found","code":"RESOURCE_NOT_FOUND"}`},
			"unknown kind of metadata": {h.do("GET", "/api/v1/meta/page", ""), 404,
				`{"error":"Metadata type page not found","code":"RESOURCE_NOT_FOUND"}`},
			"unknown route": {h.do("GET", "/api/v1/zzz", ""), 404,
				`{"success":false,"error":{"code":"ENDPOINT_NOT_FOUND","message":"Not found"}}`},
			"wrong method": {h.do("PUT", account+"/"+acme, "{}"), 405,
				`{"success":false,"error":{"code":"METHOD_NOT_ALLOWED","message":"PUT is not supported for /api/v1/data/account/` + acme + `. Allowed: DELETE, GET, HEAD, PATCH.",
				"details":{"method":"PUT","path":"/api/v1/data/account/` + acme + `","allowed":["DELETE","GET","HEAD","PATCH"]}}}`},
			"invalid record": {h.do("POST", account, `{"industry":"zzz","annual_revenue":"x"}`), 400,
				`{"error":"Name is required; Industry must be one of: technology, finance, retail; Annual Revenue must be a number","code":"VALIDATION_FAILED","object":"account",
				"fields":[{"field":"name","code":"required","message":"Name is required","label":"Name"},
				{"field":"industry","code":"invalid_option","message":"Industry must be one of: technology, finance, retail","label":"Industry","constraint":{"allowed":"technology, finance, retail"},"options":["technology","finance","retail"]},
				{"field":"annual_revenue","code":"invalid_number","message":"Annual Revenue must be a number","label":"Annual Revenue"}]}`},
			"cleared": {h.do("PATCH", account+"/"+acme, `{"name":null}`), 400,
				`{"error":"Name is required and cannot be cleared","code":"VALIDATION_FAILED","object":"account",
				"fields":[{"field":"name","code":"required","message":"Name is required and cannot be cleared","label":"Name"}]}`},
			"min": {h.do("POST", account, `{"name":"x","annual_revenue":-1}`), 400,
				`{"error":"Annual Revenue must be ≥ 0","code":"VALIDATION_FAILED","object":"account",
				"fields":[{"field":"annual_revenue","code":"min_value","message":"Annual Revenue must be ≥ 0","label":"Annual Revenue","constraint":{"min":0}}]}`},
			"max length": {h.do("POST", account, `{"name":"x","code":"`+strings.Repeat("x", 40)+`"}`), 400,
				`{"error":"Code must be ≤ 20 characters (got 40)","code":"VALIDATION_FAILED","object":"account",
				"fields":[{"field":"code","code":"max_length","message":"Code must be ≤ 20 characters (got 40)","label":"Code","constraint":{"maxLength":20,"actual":40}}]}`},
			"unknown field": {h.do("POST", account, `{"name":"x","nope_field":1}`), 400,
				`{"error":"Unknown field 'nope_field' on object 'account'","code":"INVALID_FIELD","field":"nope_field","object":"account"}`},
			"unique": {h.do("POST", account, `{"name":"dup","code":"1"}`), 409,
				`{"error":"A record with this value already exists","code":"UNIQUE_VIOLATION","field":"code","object":"account",
				"developerMessage":"Duplicate record refused on 'account': a unique constraint already holds these values. No record was written."}`},
			"unique, update": {h.do("PATCH", account+"/"+m[1], `{"code":"1"}`), 409,
				`{"error":"A record with this value already exists","code":"UNIQUE_VIOLATION","field":"code","object":"account",
				"developerMessage":"Duplicate record refused on 'account': a unique constraint already holds these values. No record was written."}`},
			"closed": {h.do("POST", "/api/v1/data/ledger", `{"title":"x"}`), 405,
				`{"error":"*","code":"OBJECT_API_METHOD_NOT_ALLOWED","object":"ledger","allowed":["get","list"]}`},
			"malformed body": {h.do("POST", account, `{bad`), 400,
				`{"error":"*","code":"INVALID_REQUEST"}`},
			"no body": {h.do("POST", account, ``), 400,
				`{"error":"*","code":"INVALID_REQUEST"}`},
			"body is no object": {h.do("PATCH", account+"/"+acme, `[]`), 400,
				`{"error":"Request body must be a JSON object.","code":"INVALID_REQUEST"}`},
		} {
			t.Run(name, func(t *testing.T) {
				h := *h
				h.t = t
				h.same(h.get(test.status, test.w), test.body)
			})
		}
		restricted := h.get(409, h.do("DELETE", account+"/"+acme, ""))
		if restricted["code"] != "DELETE_RESTRICTED" || restricted["object"] != "account" {
			t.Errorf("restricted delete: %v", restricted)
		}
	})
}

// TestTextIsRefusedAlike sends text that one of the databases would not store.
func TestTextIsRefusedAlike(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		for name, body := range map[string]string{
			"NUL":           `{"name":"a\u0000b"}`,
			"invalid UTF-8": "{\"name\":\"a\xffb\"}",
			"half a pair":   `{"name":"\ud800"}`,
			"NUL in an id":  `{"id":"a\u0000","name":"x"}`,
			"NUL in a key":  `{"na\u0000me":"x"}`,
			"1e400":         `{"name":"x","annual_revenue":1e400}`,
			"39 digits":     `{"name":"x","annual_revenue":123456789012345678901234567890123456789}`,
		} {
			w := h.do("POST", "/api/v1/data/account", body)
			if w.Code != 400 {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
		}
		for name, where := range map[string]string{
			"NUL": `{"name":"a\u0000b"}`, "NUL in like": `{"name":{"$like":"\u0000%"}}`, "NUL in a list": `{"name":{"$in":["\u0000"]}}`,
		} {
			w := h.do("POST", "/api/v1/data/account/query", `{"where":`+where+`}`)
			if w.Code != 400 && w.Code != 200 {
				t.Errorf("filter with %s: %d %s", name, w.Code, w.Body)
			}
		}
	})
}

// TestDatabaseFailureIsWithheld takes the database away under the server.
func TestDatabaseFailureIsWithheld(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		h.get(200, h.do("GET", "/api/v1/data/account", "")) // the key is cached now
		if _, err := h.engine.DB().Write(t.Context()).ExecContext(t.Context(), "DROP TABLE account"); err != nil {
			t.Fatal(err)
		}
		w := h.do("GET", "/api/v1/data/account", "", "X-Request-Id", "lost")
		h.same(h.get(500, w), `{"error":"Internal server error","code":"DATABASE_ERROR"}`)
		for _, line := range h.log.lines(t) {
			if line["request_id"] == "lost" {
				if text, _ := line["error"].(string); line["level"] != "ERROR" || !strings.Contains(text, "account") {
					t.Errorf("logged %v", line)
				}
				return
			}
		}
		t.Error("not logged")
	})
}

func TestRefusalOf(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err    error
		family family
		status int
		want   string
	}{
		"engine, flat": {&data.Error{Code: "UNIQUE_VIOLATION", Message: "m", Object: "o"}, flat, 409,
			`{"error":"m","code":"UNIQUE_VIOLATION","object":"o"}`},
		"engine, wrapped": {&data.Error{Code: "UNIQUE_VIOLATION", Message: "m", Object: "o"}, wrapped, 409,
			`{"success":false,"error":{"code":"UNIQUE_VIOLATION","message":"m","details":{"object":"o"}}}`},
		"engine, 5xx": {&data.Error{Code: "DATABASE_ERROR", Message: "pq: hunter2"}, wrapped, 500,
			`{"success":false,"error":{"code":"DATABASE_ERROR","message":"Internal server error"}}`},
		"plugin's code": {data.Refuse("VALIDATION_ERROR", "sys_webhook", "header X-A"), flat, 400,
			`{"error":"header X-A","code":"VALIDATION_ERROR","object":"sys_webhook"}`},
		"unauthenticated": {identity.ErrUnauthenticated, wrapped, 401,
			`{"success":false,"error":{"code":"UNAUTHENTICATED","message":"Authentication is required to access this endpoint."}}`},
		"writer busy": {fmt.Errorf("write: %w", &storage.WriterBusyError{Holder: "import"}), flat, 500,
			`{"error":"Internal server error","code":"DATABASE_ERROR"}`},
		"commit unknown": {&storage.CommitUnknownError{Err: errors.New("reset")}, flat, 500,
			`{"error":"Internal server error","code":"DATABASE_ERROR"}`},
		"other": {errors.New("dial db.internal"), flat, 500, `{"error":"Internal server error","code":"INTERNAL_ERROR"}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			fail(w, r, test.family, test.err)
			want(t, w, test.status, test.want)
		})
	}
}

// TestClientGone logs a client that went away as what it is, not as a failure.
func TestClientGone(t *testing.T) {
	t.Parallel()
	p := setupPlain(t, Config{}, testRoute("GET", "/x", func(w http.ResponseWriter, r *http.Request) {
		fail(w, r, flat, context.Cause(r.Context()))
	}, anonymous))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/x", nil))
	line := p.log.lines(t)[0]
	if line["level"] != "INFO" || line["status"] != float64(499) {
		t.Errorf("logged %v", line)
	}
}
