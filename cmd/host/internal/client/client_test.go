package client_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/objecthost/objecthost/cmd/host/internal/client"
)

func TestErrorEnvelopes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, body string
		status     int
		want       client.Error
	}{
		{"flat", `{"error":"Name is required","code":"VALIDATION_FAILED","fields":[]}`, 400,
			client.Error{Status: 400, Code: "VALIDATION_FAILED", Message: "Name is required"}},
		{"gate", `{"error":"UNAUTHENTICATED","code":"UNAUTHENTICATED","message":"sign in"}`, 401,
			client.Error{Status: 401, Code: "UNAUTHENTICATED", Message: "sign in"}},
		{"wrapped", `{"success":false,"error":{"code":"X","message":"one\ntwo"}}`, 409,
			client.Error{Status: 409, Code: "X", Message: "one two"}},
		{"not JSON", `<html>`, 502, client.Error{Status: 502, Message: "Bad Gateway"}},
		{"null", `null`, 500, client.Error{Status: 500, Message: "Internal Server Error"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			}))
			defer server.Close()
			c, err := client.New(server.URL, "")
			if err != nil {
				t.Fatal(err)
			}
			err = c.Delete(t.Context(), "account", "1")
			var got *client.Error
			if !errors.As(err, &got) || *got != tc.want {
				t.Errorf("got %+v, want %+v", err, tc.want)
			}
		})
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	var seen string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen = r.Method + " " + r.URL.EscapedPath() + " " + string(body) + " " + r.Header.Get("X-API-Key") + " " + r.Header.Get("Content-Type")
		_, _ = io.WriteString(w, `{"record":{"id":"x","n":12345678901234567890},"records":[{"id":"x"}],"total":7,"hasMore":true}`)
	}))
	defer server.Close()
	c, err := client.New(server.URL+"/", "osk_1")
	if err != nil {
		t.Fatal(err)
	}
	record, err := c.Create(t.Context(), "account", client.Record{"name": "A"})
	if err != nil || seen != `POST /api/v1/data/account {"name":"A"} osk_1 application/json` || record["n"] != json.Number("12345678901234567890") {
		t.Errorf("create: %v %q %v", err, seen, record)
	}
	if _, err := c.Update(t.Context(), "account", "a/b", client.Record{"name": "B"}); err != nil || seen != `PATCH /api/v1/data/account/a%2Fb {"name":"B"} osk_1 application/json` {
		t.Errorf("update: %v %q", err, seen)
	}
	if _, err := c.Get(t.Context(), "account", "x"); err != nil || seen != `GET /api/v1/data/account/x  osk_1 ` {
		t.Errorf("get: %v %q", err, seen)
	}
	page, err := c.Find(t.Context(), "account", client.Query{Where: client.Record{"a": 1}, OrderBy: []client.OrderTerm{{Field: "b", Order: "desc"}}, Limit: 2})
	if err != nil || seen != `POST /api/v1/data/account/query {"where":{"a":1},"orderBy":[{"field":"b","order":"desc"}],"limit":2} osk_1 application/json` || page.Total != 7 || !page.HasMore || len(page.Records) != 1 {
		t.Errorf("find: %v %q %+v", err, seen, page)
	}
}

func TestNewRefusesOddURLs(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "127.0.0.1:8080", "ftp://x", "http://", "://"} {
		if _, err := client.New(bad, ""); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
