package webhooks

import (
	"slices"
	"strings"
	"testing"
)

func TestCase_URL_write_door(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"https://recv.test/in?key=a&key=b&empty=&q=a+b%20c&x=%2F",
		"https://recv.test/" + strings.Repeat("x", 297-18),
		"https://recv.test/in?" + strings.Repeat("s", 2048-21),
		"http://127.0.0.1:46603/hook", "http://[::1]:8080/in", "https://user:p%40ss%23w@recv.test/in",
	} {
		got, err := normalise(create(map[string]any{"url": url}))
		if err != nil {
			t.Errorf("%s: %v", url, err)
		} else if _, changed := got.values["url"]; changed {
			t.Errorf("%s was changed", url)
		}
	}
	for name, url := range map[string]string{
		"URL-03 raw # in the password": "https://svc:p@ss#w@recv.test/in", "URL-03 fragment": "https://recv.test/in#x",
		"URL-04 no host": "http:///x", "URL-04 no scheme": "//recv.test/x", "URL-04 host as scheme": "recv.test:8080/x",
		"URL-04 ftp": "ftp://recv.test/", "URL-04 port": "http://recv.test:99999/", "URL-04 escape": "http://recv.test/%zz",
		"URL-04 blank": " http://recv.test/", "URL-04 line end": "http://recv.test/\n", "empty": "",
		"URL-01 too long": "https://recv.test/in?" + strings.Repeat("s", 2048-20), "CON-07 zone": "http://[fe80::1%25lo]:80/",
	} {
		for _, values := range []map[string]any{{"url": url}, {"definition_json": map[string]any{"url": url}}} {
			if got := complaints(t, create(values)); !slices.Equal(got, []string{"url invalid_url"}) {
				t.Errorf("%s: got %q", name, got)
			}
		}
	}
}

func TestCase_HDR_02_broken_headers(t *testing.T) {
	t.Parallel()
	for _, headers := range []map[string]any{
		{"X-A": "s3cret\r\nX-Injected: 1"}, {"X A": "s3cret"}, {"X-A:": "s3cret"}, {"": "s3cret"}, {"X-A": "s3cret\x00"},
		{"Host": "s3cret"}, {"content-length": "s3cret"}, {"x-objectstack-signature": "s3cret"}, {"WEBHOOK-ID": "s3cret"},
		{"X-A": "s3cret", "x-a": "s3cret"}, {"Authorization": "Bearer s3cret\n"},
	} {
		for _, values := range []map[string]any{
			{"headers_secret": headers, "url": "nonsense"}, {"definition_json": map[string]any{"headers": headers}},
		} {
			_, err := normalise(create(values))
			refused, ok := err.(*HeaderError)
			if !ok || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%v: got %v", headers, err)
				continue
			}
			if _, named := headers[refused.Header]; !named && refused.Header != "(empty)" {
				t.Errorf("%v: names %q", headers, refused.Header)
			}
		}
	}
}
