package messaging

import (
	"errors"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/services/messaging/messagingtest"
)

func TestCase_URL_01_LongURLIsSentByteForByte(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t)
	for _, size := range []int{297, 1500, maxURL} {
		base := r.URL + "/hook?sig="
		url := base + strings.Repeat("a", size-len(base))
		if err := ValidateURL(url); err != nil {
			t.Fatalf("%d characters: %v", size, err)
		}
		want(t, s.Send(t.Context(), outgoing(url)), 200, ClassNone, "")
		requests := r.Requests()
		if got := r.URL + requests[len(requests)-1].RequestURI; got != url {
			t.Errorf("%d characters arrived as %d", size, len(got))
		}
	}
	for _, size := range []int{maxURL + 1, 2083} {
		url := "https://recv.test/" + strings.Repeat("a", size-18)
		if err := ValidateURL(url); err == nil || err.Error() != "url: is longer than 2048 characters" {
			t.Errorf("%d characters: %v", size, err)
		}
	}
}

func TestCase_URL_03_UserinfoNeverMovesTheHost(t *testing.T) {
	t.Parallel()
	for url, reason := range map[string]string{
		"https://svc:p@ss#w@recv.test/in":   "has a fragment (a # in a password must be written %23)",
		"https://svc:p@ss@recv.test/in":     "userinfo has a raw @ (it must be written %40)",
		"https://svc:p%ss@recv.test/in":     "has an invalid percent-encoding",
		"https://svc:p/ss@recv.test/in":     "port is not a number",
		"https://recv.test/in#part":         "has a fragment (a # in a password must be written %23)",
		"https://recv.test/in#":             "has a fragment (a # in a password must be written %23)",
		`https://recv.test\@127.0.0.1/in`:   "has a backslash",
		"https://@recv.test/":               "userinfo is empty",
		"https://a%3Ab:p@recv.test/":        "user name has a colon",
		"https://svc:p ss@recv.test/":       "has white space or a control character",
		"https://svc:p\"ss@recv.test/in":    "userinfo has characters that must be percent-encoded",
		"https://recv.test:80@127.0.0.1@x/": "userinfo has a raw @ (it must be written %40)",
	} {
		var urlErr *URLError
		if err := ValidateURL(url); !errors.As(err, &urlErr) || urlErr.Reason != reason {
			t.Errorf("%s: %v, want %s", url, err, reason)
		}
		a := newSender(t).Send(t.Context(), outgoing(url))
		if a.Class != ClassUnusable || a.Sent || strings.Contains(a.Error, "svc") {
			t.Errorf("%s: attempt is %+v", url, a)
		}
	}
	for _, url := range []string{"https://svc:p%40ss%23w%25@recv.test/in", "https://svc@recv.test/", "https://svc:@recv.test/"} {
		if err := ValidateURL(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestCase_URL_03_UserinfoBecomesBasicAndIsNeverRecorded(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	r.Handle("/in", messagingtest.Echo())
	s := newSender(t)
	url := strings.Replace(r.URL, "http://", "http://svc:p%40ss%23w%25rd@", 1) + "/in"
	a := s.Send(t.Context(), outgoing(url))
	want(t, a, 200, ClassNone, "")
	const basic = "Basic c3ZjOnBAc3MjdyVyZA==" // svc:p@ss#w%rd
	if got := r.Requests()[0].Header.Get("Authorization"); got != basic {
		t.Errorf("Authorization is %q", got)
	}
	if got := a.RequestHeaders.Get("Authorization"); got != mask {
		t.Errorf("recorded Authorization is %q", got)
	}
	if strings.Contains(a.ResponseBody, "c3Zj") || !strings.Contains(a.ResponseBody, "Authorization: "+mask) {
		t.Errorf("answer is recorded as %q", a.ResponseBody)
	}
	// Both an own Authorization header and authentication win over it.
	o := outgoing(url)
	o.Headers = map[string]string{"authorization": "Token abcdef"}
	s.Send(t.Context(), o)
	o.Auth = &Authentication{Type: AuthBearer, Credentials: map[string]string{"token": "t0ken1"}}
	s.Send(t.Context(), o)
	got := r.Requests()
	if a, b := got[1].Header["Authorization"], got[2].Header["Authorization"]; len(a) != 1 || a[0] != "Token abcdef" || len(b) != 1 || b[0] != "Bearer t0ken1" {
		t.Errorf("Authorization is %q and %q", a, b)
	}
	// A refused connection tells nothing of the URL.
	r.Close()
	if a := s.Send(t.Context(), outgoing(url+"?token=hush")); a.Error != "connect: connection refused" {
		t.Errorf("error is %q", a.Error)
	}
}

// badURLs are refused at the write door, and dead at once when stored anyway.
var badURLs = map[string]string{
	"":                        "is empty",
	"http:///x":               "host is missing",
	"//recv.test/x":           "scheme must be http or https",
	"recv.test:8080/x":        "scheme must be http or https",
	"recv.test/x":             "scheme must be http or https",
	"ftp://recv.test/":        "scheme must be http or https",
	"javascript:alert(1)":     "scheme must be http or https",
	"http:recv.test/x":        "host is missing",
	"http:/recv.test/x":       "host is missing",
	"http://recv.test:99999/": "port is outside 1 to 65535",
	"http://recv.test:0/":     "port is outside 1 to 65535",
	"http://recv.test:/":      "port is empty",
	"http://recv.test:x/":     "port is not a number",
	"http://recv.test:-1/":    "port is not a number",
	"http://recv.test/%zz":    "has an invalid percent-encoding",
	" http://recv.test/":      "has white space or a control character",
	"http://recv.test/\n":     "has white space or a control character",
	"http://recv.test/\x00":   "has white space or a control character",
	"http://recv.test/a b":    "has white space or a control character",
	"http://recv.test/\xff":   "is not valid UTF-8",
	"http://recv.test/é":      "path has characters that must be percent-encoded",
	"http://recv.test/{id}":   "path has characters that must be percent-encoded",
	"http://recv.test/?q=é":   "query has characters that must be percent-encoded",
	"http://re%63v.test/":     "has an invalid percent-encoding",
	"http://.test/":           "host has an empty or overlong label",
	"http://a..test/":         "host has an empty or overlong label",
	"http://./":               "host has an empty or overlong label",
	"http://a_b!c.test/":      "host has an invalid character",
	"http://[::1%25lo]/":      "host has an IPv6 zone, which means something on one machine only",
	"http://[::g]/":           "cannot be parsed",
	"http://１２７.０.０.１/":       "host has an invalid character",
	"http://127。0。0。1/":       "host has an invalid character",
	"http://2130706433/":      "host is a number but not an IPv4 address in its usual form",
	"http://0177.0.0.1/":      "host is a number but not an IPv4 address in its usual form",
	"http://0x7f.1/":          "host is a number but not an IPv4 address in its usual form",
	"http://0x7f000001/":      "host is a number but not an IPv4 address in its usual form",
	"http://127.1/":           "host is a number but not an IPv4 address in its usual form",
	"http://127.0.0.1./":      "host is a number but not an IPv4 address in its usual form",
	"http://127.0.0.0x1/":     "host is a number but not an IPv4 address in its usual form",
	"http://0/":               "host is a number but not an IPv4 address in its usual form",
	"http://1/":               "host is a number but not an IPv4 address in its usual form",
	"http://1.2.3.4.5/":       "host is a number but not an IPv4 address in its usual form",
	"http://0x/":              "host is a number but not an IPv4 address in its usual form",
	"http://evil.test.09/":    "host is a number but not an IPv4 address in its usual form",
}

func TestCase_URL_04_UnusableURLIsRefusedAndDead(t *testing.T) {
	t.Parallel()
	s := newSender(t)
	for url, reason := range badURLs {
		var urlErr *URLError
		if err := ValidateURL(url); !errors.As(err, &urlErr) || urlErr.Reason != reason {
			t.Errorf("%q: %v, want %s", url, err, reason)
		}
		a := s.Send(t.Context(), outgoing(url))
		d := Decide(Input{Attempt: a, AttemptsDone: 3})
		if d != (Decision{Outcome: OutcomeDead, Error: "url: " + reason}) {
			t.Errorf("%q: decision is %+v", url, d)
		}
	}
	for _, url := range []string{
		"http://recv.test", "HTTPS://Recv.Test:443/X", "http://recv.test?x=1", "https://bücher.example/", "http://a_b.test/",
		"http://[2001:4860::8888]:8080/", "http://8.8.8.8/", "http://recv.test./x", "http://recv.test//x", "http://x.0xg/", "http://recv.test/?",
		"http://recv.test/a%2Fb/%E4%B8%AD;v=1", "http://recv.test/?q={a}|b^\"<>`",
	} {
		if err := ValidateURL(url); err != nil {
			t.Errorf("%q: %v", url, err)
		}
	}
}

func TestCase_URL_06_QueryIsSentByteForByte(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t)
	for _, uri := range []string{
		"/in?key=a&key=b&empty=&q=a+b%20c&x=%2F", "/in?", "/in?b=2&a=1&&;c", "//double/./a/../b", "/a%2Fb%2f/%7Euser/(x)/*'!",
		"/?q={a}|b^\"<>`[]", "/a:b@c,d=e$f;g", "/%E4%B8%AD?x=%e4",
	} {
		for attempt := range 3 {
			o := outgoing(r.URL + uri)
			o.Attempt = attempt + 1
			want(t, s.Send(t.Context(), o), 200, ClassNone, "")
			requests := r.Requests()
			if got := requests[len(requests)-1].RequestURI; got != uri {
				t.Errorf("attempt %d: request URI is %q, want %q", attempt+1, got, uri)
			}
		}
	}
}
