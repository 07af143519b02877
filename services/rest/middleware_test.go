package rest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func TestHeaders(t *testing.T) {
	t.Parallel()
	p := setupPlain(t, Config{}, testRoute("GET", "/x", echo(), anonymous))
	w := call(t, p.handler, "GET", "/x", "")
	for name, value := range map[string]string{
		"X-Content-Type-Options":  "nosniff",
		"Referrer-Policy":         "no-referrer",
		"X-Frame-Options":         "DENY",
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
		"Cache-Control":           "no-store",
		"Vary":                    "Origin",
		"Content-Length":          "2",
	} {
		if got := w.Header().Get(name); got != value {
			t.Errorf("%s = %q, want %q", name, got, value)
		}
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	p := setupPlain(t, Config{}, testRoute("GET", "/x", echo(), anonymous))
	fresh := regexp.MustCompile(`^[A-Za-z0-9_-]{16}$`)
	for given, kept := range map[string]bool{
		"abc-1.2_3": true, "": false, "a b": false, "a\"b": false, strings.Repeat("a", 65): false, "a\tb": false,
	} {
		got := call(t, p.handler, "GET", "/x", "", "X-Request-Id", given).Header().Get("X-Request-Id")
		if kept && got != given || !kept && !fresh.MatchString(got) {
			t.Errorf("X-Request-Id %q became %q", given, got)
		}
	}
}

func TestAccessLog(t *testing.T) {
	t.Parallel()
	p := setupPlain(t, Config{}, testRoute("POST", "/x/{id}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(202)
		_, _ = io.WriteString(w, "hello")
	}))
	key := makeKey(t, p.auth, "admin")
	call(t, p.handler, "POST", "/x/1?token=s3cret", `{"password":"s3cret"}`, "X-API-Key", key, "X-Request-Id", "r1", "Cookie", "session=s3cret")
	call(t, p.handler, "GET", "/nowhere/s%0A", "")
	if strings.Contains(p.log.String(), "s3cret") || strings.Contains(p.log.String(), key) {
		t.Errorf("the log tells a secret: %s", p.log)
	}
	lines := p.log.lines(t)
	if len(lines) != 2 {
		t.Fatalf("%d lines, want one for each request: %s", len(lines), p.log)
	}
	line := lines[0]
	for name, value := range map[string]any{
		"level": "INFO", "request_id": "r1", "method": "POST", "path": "/x/1", "route": "/x/{id}",
		"status": float64(202), "bytes": float64(5), "remote": "192.0.2.1:1234",
	} {
		if line[name] != value {
			t.Errorf("%s = %v, want %v", name, line[name], value)
		}
	}
	if id, _ := line["key_id"].(string); len(id) != 16 {
		t.Errorf("key_id = %v", line["key_id"])
	}
	if lines[1]["route"] != "" || lines[1]["status"] != float64(404) || lines[1]["path"] != "/nowhere/s\n" {
		t.Errorf("second line %v", lines[1])
	}
}

func TestPanic(t *testing.T) {
	t.Parallel()
	p := setupPlain(t, Config{},
		testRoute("GET", "/early", func(http.ResponseWriter, *http.Request) { panic("db password is hunter2") }, anonymous),
		testRoute("GET", "/late", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "half an ")
			panic("too late")
		}, anonymous),
	)
	w := call(t, p.handler, "GET", "/early", "")
	want(t, w, 500, `{"success":false,"error":{"code":"INTERNAL_ERROR","message":"Internal server error"}}`)
	line := p.log.lines(t)[0]
	if line["level"] != "ERROR" || line["error"] != "handler panicked: db password is hunter2" || line["route_plugin"] != "com.example.test" {
		t.Errorf("logged %v", line)
	}
	if stack, _ := line["stack"].(string); !strings.Contains(stack, "middleware_test.go") {
		t.Errorf("stack %q", stack)
	}

	server := httptest.NewServer(p.handler)
	defer server.Close()
	resp, err := http.Get(server.URL + "/late")
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
	}
	if err == nil {
		t.Error("a client took half an answer for a whole one")
	}
}

func TestBodyLimit(t *testing.T) {
	t.Parallel()
	read := func(w http.ResponseWriter, r *http.Request) {
		if _, err := readObject(r); err != nil {
			fail(w, r, flat, err)
			return
		}
		w.WriteHeader(204)
	}
	p := setupPlain(t, Config{BodyLimit: 1024}, testRoute("POST", "/x", read, anonymous))
	body := func(n int) string { return `{"a":"` + strings.Repeat("b", n-8) + `"}` }
	want(t, call(t, p.handler, "POST", "/x", body(1024)), 204, "")
	want(t, call(t, p.handler, "POST", "/x", body(1025)), 413,
		`{"error":"Request body is larger than 1024 bytes.","code":"PAYLOAD_TOO_LARGE"}`)
}

func TestReadObject(t *testing.T) {
	t.Parallel()
	p := setupPlain(t, Config{}, testRoute("POST", "/x", func(w http.ResponseWriter, r *http.Request) {
		object, err := readObject(r)
		if err != nil {
			fail(w, r, flat, err)
			return
		}
		_ = writeJSON(w, 200, object)
	}, anonymous))
	for name, test := range map[string]struct {
		body   string
		status int
	}{
		"digits":          {`{"a":123456789012345678901234567890.10,"b":1e2}`, 200},
		"escapes":         {`{"a":"\ud83d\ude00 <&> \u2028"}`, 200},
		"empty":           {``, 400},
		"blank":           {" \n", 400},
		"malformed":       {`{bad`, 400},
		"array":           {`[]`, 400},
		"null":            {`null`, 400},
		"text after":      {`{} x`, 400},
		"two values":      {`{}{}`, 400},
		"key twice":       {`{"a":1,"a":2}`, 400},
		"key twice below": {`{"a":[{"b":1,"b":1}]}`, 400},
		"invalid UTF-8":   {"{\"a\":\"a\xffb\"}", 400},
		"half a pair":     {`{"a":"\ud800"}`, 400},
		"deep":            {`{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, 400},
	} {
		t.Run(name, func(t *testing.T) {
			w := call(t, p.handler, "POST", "/x", test.body)
			if test.status == 200 {
				want(t, w, 200, test.body)
				return
			}
			got, _ := parse(t, w.Body.String()).(map[string]any)
			if w.Code != test.status || got["code"] != "INVALID_REQUEST" {
				t.Errorf("answer %d %s", w.Code, w.Body)
			}
		})
	}
}

func TestPathText(t *testing.T) {
	t.Parallel()
	p := setupPlain(t, Config{}, testRoute("GET", "/x/{id}", echo("id"), anonymous))
	want(t, call(t, p.handler, "GET", "/x/%C3%A4", ""), 200, `{"id":"ä"}`)
	for _, path := range []string{"/x/%00", "/x/%ff"} {
		want(t, call(t, p.handler, "GET", path, ""), 400,
			`{"success":false,"error":{"code":"INVALID_REQUEST","message":"Request path must be valid UTF-8 without NUL."}}`)
	}
	want(t, call(t, p.handler, "GET", "/api/v1/data/account/%00", ""), 400,
		`{"error":"Request path must be valid UTF-8 without NUL.","code":"INVALID_REQUEST"}`)
}

func TestHead(t *testing.T) {
	t.Parallel()
	p := setupPlain(t, Config{}, testRoute("GET", "/x", func(w http.ResponseWriter, _ *http.Request) {
		_ = writeJSON(w, 200, map[string]string{"a": "b"})
	}, anonymous))
	server := httptest.NewServer(p.handler)
	defer server.Close()
	resp, err := http.Head(server.URL + "/x")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 200 || len(body) != 0 || resp.Header.Get("Content-Length") != "9" {
		t.Errorf("HEAD = %d, %d bytes, Content-Length %q", resp.StatusCode, len(body), resp.Header.Get("Content-Length"))
	}
}

func TestCORS(t *testing.T) {
	t.Parallel()
	const allowed = "https://app.example.com"
	p := setupPlain(t, Config{AllowedOrigins: []string{allowed}}, testRoute("GET", "/x", echo(), anonymous))
	names := []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Allow-Methods",
		"Access-Control-Allow-Headers", "Access-Control-Expose-Headers"}
	for name, test := range map[string]struct {
		method, origin string
		preflight      bool
		status         int
		want           []string
	}{
		"preflight": {"OPTIONS", allowed, true, 204, []string{allowed, "true",
			"GET,POST,PUT,DELETE,PATCH,HEAD,OPTIONS",
			"Content-Type,Authorization,X-Requested-With,X-Tenant-ID,X-Environment-Id,If-Match", ""}},
		"call":                {"GET", allowed, false, 200, []string{allowed, "true", "", "", "set-auth-token,x-objectstack-dropped-fields"}},
		"plain OPTIONS":       {"OPTIONS", allowed, false, 204, []string{allowed, "true", "", "", "set-auth-token,x-objectstack-dropped-fields"}},
		"foreign preflight":   {"OPTIONS", "https://evil.example", true, 204, []string{"", "", "", "", ""}},
		"foreign call":        {"GET", "https://evil.example", false, 200, []string{"", "", "", "", ""}},
		"origin as suffix":    {"GET", "https://app.example.com.evil.example", false, 200, []string{"", "", "", "", ""}},
		"no origin":           {"GET", "", false, 200, []string{"", "", "", "", ""}},
		"preflight elsewhere": {"OPTIONS", "null", true, 204, []string{"", "", "", "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			var header []string
			if test.origin != "" {
				header = append(header, "Origin", test.origin)
			}
			if test.preflight {
				header = append(header, "Access-Control-Request-Method", "GET")
			}
			w := call(t, p.handler, test.method, "/x", "", header...)
			if w.Code != test.status {
				t.Errorf("status %d, want %d", w.Code, test.status)
			}
			for i, header := range names {
				if got := w.Header().Get(header); got != test.want[i] {
					t.Errorf("%s = %q, want %q", header, got, test.want[i])
				}
			}
			if got := w.Header().Get("Vary"); got != "Origin" {
				t.Errorf("Vary = %q", got)
			}
		})
	}
}
