package messaging

import (
	"bytes"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// What is accepted is sent to the host that stands in it, byte for byte.
func FuzzValidateURL(f *testing.F) {
	for bad := range badURLs {
		f.Add(bad)
	}
	for _, good := range []string{
		"https://svc:p%40ss%23w@recv.test/in", "http://recv.test?x=1", "http://[2001:4860::8888]:8080/a%2Fb", "https://bücher.example/?q={a}",
	} {
		f.Add(good)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		p, err := parseTarget(raw)
		if err != nil {
			if text := err.Error(); len(text) > 200 || !utf8.ValidString(text) {
				t.Errorf("error of %q is %q", raw, text)
			}
			return
		}
		u, err := url.Parse(raw)
		if err != nil || u.Host != p.url.Host || p.url.User != nil {
			t.Fatalf("%q: host %q and %v", raw, p.url.Host, err)
		}
		if strings.ContainsAny(raw, "#\\ \r\n\t\x00") || strings.Count(raw, "@") > 1 && !strings.ContainsAny(raw, "/?") {
			t.Errorf("%q is accepted", raw)
		}
		uri := p.url.RequestURI()
		if !strings.HasSuffix("/"+raw, uri) && uri != "/" && !strings.HasSuffix(raw, uri[1:]) {
			t.Errorf("%q is requested as %q", raw, uri)
		}
		if host := p.url.Hostname(); numeric(host[strings.LastIndexByte(strings.TrimSuffix(host, "."), '.')+1:]) && !strings.Contains(host, ":") {
			if _, err := netip.ParseAddr(host); err != nil {
				t.Errorf("%q has the number %q as its host", raw, host)
			}
		}
		// The request as net/http writes it begins with exactly that line.
		req := &http.Request{Method: "GET", URL: p.url, Host: p.url.Host, Header: http.Header{}}
		var wire bytes.Buffer
		if err := req.Write(&wire); err != nil {
			return // an IDNA name that is no name: fails at send, before the network
		}
		if line, _, _ := strings.Cut(wire.String(), "\r\n"); line != "GET "+uri+" HTTP/1.1" {
			t.Errorf("%q is sent as %q", raw, line)
		}
	})
}

// What is accepted reaches the wire as one header with the same value.
func FuzzValidateHeaders(f *testing.F) {
	for _, seed := range [][2]string{
		{"X-A", "v"}, {"X-A", "v\r\nX-Injected: 1"}, {"X A", "v"}, {"X-A:", "v"}, {"", "v"}, {"X-A", "\x00"}, {"x-objectstack-signature", "sha256=00"},
		{"Webhook-Id", "1"}, {"HOST", "x"}, {"X-Name", "Zoë 客户"}, {"X-\xff", "v"}, {"X-A", "\xff"}, {"Content-Type", "text/plain"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		err := ValidateHeaders(map[string]string{name: value})
		if err != nil {
			// The texts are fixed but for the name; a value that is part of one says nothing.
			fixed := (&HeaderError{Name: name}).Error() + " value has a line break or another control character is not valid UTF-8 is reserved name is empty"
			if strings.Contains(err.Error(), value) && !strings.Contains(fixed, value) && len(value) > 8 {
				t.Errorf("error %q shows the value %q", err, value)
			}
			return
		}
		h := http.Header{http.CanonicalHeaderKey(name): {value}}
		var wire bytes.Buffer
		if err := h.Write(&wire); err != nil {
			t.Fatal(err)
		}
		line, rest, _ := strings.Cut(wire.String(), "\r\n")
		if rest != "" || line != http.CanonicalHeaderKey(name)+": "+strings.Trim(value, " \t") {
			t.Errorf("%q: %q is sent as %q", name, value, wire.String())
		}
		if reservedName(name) {
			t.Errorf("%q is accepted", name)
		}
	})
}

// No spelling of an internal address is public, whatever it is wrapped in.
func FuzzAddressGuard(f *testing.F) {
	for text := range addressTable {
		addr := netip.MustParseAddr(text).WithZone("")
		bytes := addr.As16()
		f.Add(bytes[:])
		f.Add(addr.AsSlice())
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		addr, ok := netip.AddrFromSlice(raw)
		if !ok {
			return
		}
		kind := classify(addr)
		if kind != classify(addr.Unmap()) || kind != classify(netip.AddrFrom16(addr.As16())) {
			t.Errorf("%s: the mapped form is of another kind", addr)
		}
		plain := addr.Unmap()
		if inner := plain.IsLoopback() || plain.IsPrivate() || plain.IsLinkLocalUnicast() || plain.IsMulticast() || plain.IsUnspecified(); inner && kind == addressPublic {
			t.Errorf("%s is public", addr)
		}
		if plain.Is4() {
			v4 := plain.As4()
			for _, prefix := range []string{"64:ff9b::", "::ffff:0:0:0", "::"} {
				wrapped := netip.MustParseAddr(prefix).As16()
				copy(wrapped[12:], v4[:])
				if got := classify(netip.AddrFrom16(wrapped)); kind != addressPublic && got == addressPublic {
					t.Errorf("%s is public in %s", plain, netip.AddrFrom16(wrapped))
				}
			}
			sixToFour := [16]byte{0: 0x20, 1: 0x02}
			copy(sixToFour[2:], v4[:])
			if got := classify(netip.AddrFrom16(sixToFour)); got != kind {
				t.Errorf("%s is of kind %d, in 6to4 %d", plain, kind, got)
			}
		}
		strict := EgressConfig{}
		if err := strict.judge("x.test", addr); (err == nil) != (kind == addressPublic) {
			t.Errorf("%s of kind %d: %v", addr, kind, err)
		}
	})
}

// A body of any bytes becomes storable text within the cap.
func FuzzBodyCap(f *testing.F) {
	for _, body := range bodies[:len(bodies)-1] {
		f.Add([]byte(body), 16, "s3cret-token")
	}
	f.Add([]byte("aaa😀😀"), 5, "aaa😀")
	f.Add([]byte("\xff\xff\xff\xff"), 3, "")
	f.Add([]byte("the s3cret-token is cut"), 10, "s3cret-token")
	f.Fuzz(func(t *testing.T, body []byte, limit int, secret string) {
		if limit < 1 || limit > maxBody {
			return
		}
		resp := &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body))}
		a := &Attempt{}
		a.readAnswer(resp, &Outgoing{ResponseCap: limit}, []string{secret}, time.Time{})
		got := a.ResponseBody
		if len(got) > limit || !utf8.ValidString(got) || strings.Contains(got, "\x00") {
			t.Errorf("%q with cap %d is kept as %q", body, limit, got)
		}
		if len(secret) >= minEcho && !strings.ContainsAny(secret, "\uFFFD•") && strings.Contains(got, secret) {
			t.Errorf("%q keeps the secret %q: %q", body, secret, got)
		}
		if !a.ResponseTruncated && utf8.Valid(body) && bytes.IndexByte(body, 0) < 0 && len(secret) < minEcho && got != string(body) {
			t.Errorf("%q is kept as %q", body, got)
		}
	})
}
