package messaging

import (
	"errors"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/services/messaging/messagingtest"
)

func TestCase_HDR_01_ReservedNamesAreRefused(t *testing.T) {
	t.Parallel()
	s := newSender(t)
	for _, name := range []string{
		"x-objectstack-signature", "X-OBJECTSTACK-DELIVERY", "x-objectstack-attempt", "X-Objectstack-Event", "X-ObjectStack-Anything",
		"X-Objectstack-Signature-Previous", "webhook-id", "Webhook-Signature", "WEBHOOK-TIMESTAMP", "webhook-x", "host", "Host", "HOST",
		"content-length", "Transfer-encoding", "connection", "ACCEPT-ENCODING", "trailer", "te", "Upgrade", "expect", "keep-alive",
		"Proxy-Authorization", "proxy-connection",
	} {
		h := map[string]string{name: "evil-value"}
		var headerErr *HeaderError
		err := ValidateHeaders(h)
		if !errors.As(err, &headerErr) || headerErr.Name != name || headerErr.Reason != "is reserved" || strings.Contains(err.Error(), "evil") {
			t.Errorf("%s: %v", name, err)
		}
		o := outgoing("http://127.0.0.1:1/")
		o.Headers = h
		want(t, s.Send(t.Context(), o), 0, ClassUnusable, `header "`+name+`": is reserved`)
	}
}

func TestCase_HDR_01_OurHeadersHaveOneValueEach(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t)
	for range 50 {
		o := outgoing(r.URL)
		o.SignatureScheme, o.PreviousSecret = SignatureBoth, []byte("older")
		o.Headers = map[string]string{"X-Objectstackish": "1", "webhooks": "2"}
		want(t, s.Send(t.Context(), o), 200, ClassNone, "")
	}
	for _, req := range r.Requests() {
		for name, values := range req.Header {
			if len(values) != 1 {
				t.Errorf("%s has the values %q", name, values)
			}
		}
		if err := VerifySignature([]byte("s3cret-key"), req.Body, req.Header); err != nil {
			t.Error(err)
		}
	}
}

func TestCase_HDR_02_IllegalHeadersAreRefusedByName(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t)
	for _, bad := range []struct{ name, value, text string }{
		{"X-A", "v-secret\r\nX-Injected: 1", `header "X-A": value has a line break or another control character`},
		{"X-A", "v-secret\n", `header "X-A": value has a line break or another control character`},
		{"X-A", "v-secret\x00", `header "X-A": value has a line break or another control character`},
		{"X-A", "v-secret\x7f", `header "X-A": value has a line break or another control character`},
		{"X-A", "v-secret\xff", `header "X-A": value is not valid UTF-8`},
		{"X A", "v-secret", `header "X A": name has a character that is not allowed`},
		{"X-A:", "v-secret", `header "X-A:": name has a character that is not allowed`},
		{"X-A\r\nB", "v-secret", `header "X-A\r\nB": name has a character that is not allowed`},
		{"X-É", "v-secret", `header "X-\u00c9": name has a character that is not allowed`},
		{"X\x00", "v-secret", `header "X\x00": name has a character that is not allowed`},
		{"", "v-secret", `header "(empty)": name is empty`},
		{"X-Long", strings.Repeat("v-secret", 2000), `header "X-Long": value is longer than 8192 bytes`},
		{strings.Repeat("n", 300), "v-secret", `header "` + strings.Repeat("n", 64) + `\u2026": name is longer than 256 bytes`},
	} {
		h := map[string]string{bad.name: bad.value, "A-Good": "1"}
		if err := ValidateHeaders(h); err == nil || err.Error() != bad.text {
			t.Errorf("%q: %v, want %s", bad.name, err, bad.text)
		}
		o := outgoing(r.URL)
		o.Headers = h
		a := s.Send(t.Context(), o)
		if d := Decide(Input{Attempt: a}); d != (Decision{Outcome: OutcomeDead, Error: bad.text}) {
			t.Errorf("%q: decision is %+v", bad.name, d)
		}
	}
	if n := r.Connections(); n != 0 {
		t.Errorf("%d connections were opened", n)
	}
	want(t, s.Send(t.Context(), outgoing(r.URL)), 200, ClassNone, "")
	many := map[string]string{}
	for i := range 65 {
		many["X-"+strings.Repeat("a", i+1)] = "v"
	}
	if err := ValidateHeaders(many); err == nil || err.Error() != "headers: 65 headers, at most 64 are sent" {
		t.Errorf("65 headers: %v", err)
	}
	big := map[string]string{"A": strings.Repeat("v", 8000), "B": strings.Repeat("v", 8000), "C": strings.Repeat("v", 8000), "D": strings.Repeat("v", 8000), "E": strings.Repeat("v", 8000)}
	if err := ValidateHeaders(big); err == nil || err.Error() != "headers: 40025 bytes together, at most 32768 are sent" {
		t.Errorf("40 KB: %v", err)
	}
}

func TestCase_HDR_03_HostIsRefused(t *testing.T) {
	t.Parallel()
	if err := ValidateHeaders(map[string]string{"Host": "virtual.test"}); err == nil || err.Error() != `header "Host": is reserved` {
		t.Errorf("Host: %v", err)
	}
}

func TestCase_HDR_04_OneContentType(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t)
	o := outgoing(r.URL)
	o.Headers = map[string]string{"content-type": "application/cloudevents+json"}
	a := s.Send(t.Context(), o)
	want(t, a, 200, ClassNone, "")
	got := r.Requests()[0]
	if v := got.Header["Content-Type"]; len(v) != 1 || v[0] != "application/cloudevents+json" {
		t.Errorf("Content-Type is %q", v)
	}
	if string(got.Body) != string(o.Body) || VerifySignature(o.Secret, got.Body, got.Header) != nil {
		t.Errorf("body or signature changed")
	}
	err := ValidateHeaders(map[string]string{"Content-Type": "text/plain", "content-type": "application/json"})
	if err == nil || err.Error() != `header "content-type": is given twice, in different letter case` {
		t.Errorf("two spellings: %v", err)
	}
}

func TestCase_HDR_05_ColonsAndUTF8Arrive(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	o := outgoing(r.URL)
	o.Headers = map[string]string{"X-Link": "a:b:c", "X-Name": "Zoë 客户", "X-Tab": "a\tb", "X-Empty": "", "x-lower": "1"}
	want(t, newSender(t).Send(t.Context(), o), 200, ClassNone, "")
	got := r.Requests()[0].Header
	for name, value := range o.Headers {
		if got.Get(name) != value {
			t.Errorf("%s is %q, want %q", name, got.Get(name), value)
		}
	}
}

func TestCase_HDR_06_FramingIsOurs(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t)
	for _, name := range []string{"Content-Length", "Transfer-Encoding", "Connection", "Accept-Encoding"} {
		if err := ValidateHeaders(map[string]string{name: "9999"}); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	o := outgoing(r.URL)
	o.Headers = map[string]string{"User-Agent": "x"}
	want(t, s.Send(t.Context(), o), 200, ClassNone, "")
	got := r.Requests()[0]
	if v := got.Header["User-Agent"]; len(v) != 1 || v[0] != "x" {
		t.Errorf("User-Agent is %q", v)
	}
	if got.ContentLength != int64(len(o.Body)) || got.TransferEncoding != nil || got.Header["Accept-Encoding"] != nil {
		t.Errorf("length %d, encoding %q, Accept-Encoding %q", got.ContentLength, got.TransferEncoding, got.Header["Accept-Encoding"])
	}
}

func TestCase_HDR_07_NoHeadersIsNoProblem(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t)
	for _, h := range []map[string]string{nil, {}} {
		if err := ValidateHeaders(h); err != nil {
			t.Error(err)
		}
		o := outgoing(r.URL)
		o.Headers = h
		want(t, s.Send(t.Context(), o), 200, ClassNone, "")
	}
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t)
	for _, c := range []struct {
		auth        Authentication
		name, value string
	}{
		{Authentication{}, "", ""},
		{Authentication{Type: AuthNone}, "", ""},
		{Authentication{AuthBearer, map[string]string{"token": "tok-123456"}}, "Authorization", "Bearer tok-123456"},
		{Authentication{AuthBasic, map[string]string{"username": "u", "password": "pä:ss"}}, "Authorization", "Basic dTpww6Q6c3M="},
		{Authentication{AuthAPIKey, map[string]string{"key": "k-123456"}}, "X-Api-Key", "k-123456"},
		{Authentication{AuthAPIKey, map[string]string{"key": "k-123456", "header": "x-acme"}}, "X-Acme", "k-123456"},
	} {
		if err := c.auth.Validate(); err != nil {
			t.Errorf("%+v: %v", c.auth, err)
		}
		o := outgoing(r.URL)
		o.Auth, o.Headers = &c.auth, map[string]string{"x-acme": "author's"}
		a := s.Send(t.Context(), o)
		want(t, a, 200, ClassNone, "")
		requests := r.Requests()
		got := requests[len(requests)-1].Header
		if c.name == "" {
			if got["Authorization"] != nil || got["X-Api-Key"] != nil {
				t.Errorf("%+v: headers are %v", c.auth, got)
			}
			continue
		}
		if v := got[c.name]; len(v) != 1 || v[0] != c.value {
			t.Errorf("%s is %q, want %q", c.name, v, c.value)
		}
		if v := a.RequestHeaders[c.name]; len(v) != 1 || v[0] != mask {
			t.Errorf("recorded %s is %q", c.name, v)
		}
	}
	for want, auth := range map[string]Authentication{
		`authentication: type "digest" is not one of none, bearer, basic, api-key`:    {Type: "digest"},
		`authentication: credential "token" is missing`:                               {Type: AuthBearer},
		`authentication: credential "username" is missing`:                            {Type: AuthBasic, Credentials: map[string]string{"password": "p"}},
		`authentication: credential "username" has a colon`:                           {Type: AuthBasic, Credentials: map[string]string{"username": "a:b"}},
		`authentication: credential "tocken" is unknown for type "bearer"`:            {Type: AuthBearer, Credentials: map[string]string{"tocken": "x"}},
		`authentication: credential "key" is missing`:                                 {Type: AuthAPIKey, Credentials: map[string]string{"header": "X"}},
		`header "Host": is reserved`:                                                  {Type: AuthAPIKey, Credentials: map[string]string{"key": "x", "header": "Host"}},
		`header "Authorization": value has a line break or another control character`: {Type: AuthBearer, Credentials: map[string]string{"token": "s3cret\n"}},
	} {
		if err := auth.Validate(); err == nil || err.Error() != want {
			t.Errorf("%+v: %v, want %s", auth.Type, err, want)
		}
	}
}

func TestMethods(t *testing.T) {
	t.Parallel()
	for _, m := range []string{"post", "GET", "Put", "patch", "DELETE", "head", "options"} {
		if err := ValidateMethod(m); err != nil {
			t.Errorf("%s: %v", m, err)
		}
	}
	for _, m := range []string{"", "TRACE", "CONNECT", "POST ", "PO\nST", "poſt"} {
		if err := ValidateMethod(m); err == nil {
			t.Errorf("%q is accepted", m)
		}
	}
}
