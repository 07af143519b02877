package webhooks

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/services/messaging"
)

func parse(t *testing.T, source string) (*definition, []string) {
	t.Helper()
	d, problems, headers := parseDefinition([]byte(source))
	if headers != nil {
		t.Fatalf("parseDefinition(%s): headers: %v", source, headers)
	}
	var found []string
	for _, p := range problems {
		found = append(found, p.code+" "+p.message)
	}
	return d, found
}

func TestCase_CON_05_timeoutMs(t *testing.T) {
	t.Parallel()
	const bound = "Definition: timeoutMs must be an integer from 1000 to 300000"
	for _, tc := range []struct {
		value string
		want  int64
		code  string
	}{
		{"1000", 1000, ""}, {"300000", 300000, ""}, {"1e3", 1000, ""}, {"1000.000", 1000, ""},
		{"15E3", 15000, ""}, {"0.0015e6", 1500, ""}, {"null", 0, ""},
		{"0", 0, codeMinValue}, {"-1", 0, codeMinValue}, {"1", 0, codeMinValue}, {"999", 0, codeMinValue},
		{"-0", 0, codeMinValue}, {"-1e400", 0, codeMinValue}, {"300001", 0, codeMaxValue},
		{"999999999", 0, codeMaxValue}, {"1e400", 0, codeMaxValue}, {"1e99999999999999999999", 0, codeMaxValue},
		{"2.5", 0, codeInvalidNumber}, {"1e-9", 0, codeInvalidNumber}, {"1e-99999999999999999999", 0, codeInvalidNumber},
		{`"5000"`, 0, codeInvalidType}, {"true", 0, codeInvalidType}, {"[5000]", 0, codeInvalidType},
	} {
		d, problems := parse(t, `{"timeoutMs":`+tc.value+`}`)
		switch {
		case tc.code == "" && (len(problems) > 0 || d.rules.timeoutMS != tc.want):
			t.Errorf("timeoutMs %s: got %d, %v, want %d", tc.value, d.rules.timeoutMS, problems, tc.want)
		case tc.code != "" && !slices.Equal(problems, []string{tc.code + " " + bound}):
			t.Errorf("timeoutMs %s: got %v, want %s %s", tc.value, problems, tc.code, bound)
		}
	}
}

func TestDefinitionOptions(t *testing.T) {
	t.Parallel()
	d, problems := parse(t, `{
		"name":"crm_sync","label":"L","object":"account","triggers":["CREATE","create"," update "],
		"url":"https://recv.test/in","method":"PUT","isActive":false,"description":"d","tags":["a"],
		"timeoutMs":2000,"retryPolicy":{"maxRetries":0,"initialDelayMs":100,"maxDelayMs":1000,"backoffStrategy":"linear"},
		"ordering":"webhook","blockOnRetry":true,"maxConcurrency":64,"rateLimit":{"perSecond":0.5,"burst":3},
		"payloadFields":["name","code"],"signature":"both","expireAfterMs":60000,
		"authentication":{"type":"bearer"},"_lock":"full","_packageId":"x","protection":{"lock":"full"}}`)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := rules{
		timeoutMS: 2000, retry: &messaging.RetryPolicy{MaxRetries: 0, InitialDelayMs: 100, MaxDelayMs: 1000, Strategy: "linear"}, ordering: "webhook", blockOnRetry: true,
		maxConcurrency: 64, rate: rateLimit{0.5, 3}, payloadFields: []string{"name", "code"},
		authType: "bearer", signature: "both", expireAfterMS: 60000,
	}
	got := d.rules
	if *got.retry != *want.retry || !slices.Equal(got.payloadFields, want.payloadFields) {
		t.Errorf("got %+v %+v", got, *got.retry)
	}
	got.retry, got.payloadFields, want.retry, want.payloadFields = nil, nil, nil, nil
	if got.ordering != want.ordering || got.blockOnRetry != want.blockOnRetry || got.maxConcurrency != want.maxConcurrency ||
		got.rate != want.rate || got.authType != want.authType || got.signature != want.signature ||
		got.expireAfterMS != want.expireAfterMS || got.timeoutMS != want.timeoutMS {
		t.Errorf("got %+v, want %+v", got, want)
	}
	columns, err := encode(map[string]any(d.columns))
	if err != nil {
		t.Fatal(err)
	}
	const wantColumns = `{"active":false,"description":"d","label":"L","method":"put","name":"crm_sync",` +
		`"object_name":"account","triggers":["create","update"],"url":"https://recv.test/in"}`
	if string(columns) != wantColumns {
		t.Errorf("columns %s, want %s", columns, wantColumns)
	}
	if d.moved {
		t.Error("moved without a secret")
	}
}

func TestDefinitionRefusals(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ source, want string }{
		{``, `invalid_json Definition is not valid JSON`},
		{`{"a":`, `invalid_json Definition is not valid JSON`},
		{`{} {}`, `invalid_json Definition is not valid JSON`},
		{`[]`, `invalid_json Definition must be a JSON object`},
		{`null`, `invalid_json Definition must be a JSON object`},
		{`"x"`, `invalid_json Definition must be a JSON object`},
		{"{\"a\":\"\xff\"}", `invalid_json Definition is not valid UTF-8`},
		{`{"url":"a","url":"b"}`, `invalid_json Definition holds the key "url" twice`},
		{`{"body":{}}`, `unknown_field Definition: "body" is not a key of a webhook: the body is always the event; payloadFields chooses its record fields`},
		{`{"includeSession":false}`, `unknown_field Definition: "includeSession" is not a key of a webhook: sessions never leave the host; userId tells who made the change`},
		{`{"active":true}`, `unknown_field Definition: "active" is not a key of a webhook: use "isActive"`},
		{`{"object_name":"x"}`, `unknown_field Definition: "object_name" is not a key of a webhook: use "object"`},
		{`{"events":[]}`, `unknown_field Definition: "events" is not a key of a webhook: use "triggers"`},
		{`{"signingSecret":"x"}`, `unknown_field Definition: "signingSecret" is not a key of a webhook: use "secret"`},
		{`{"TimeoutMs":2000}`, `unknown_field Definition: "TimeoutMs" is not a key of a webhook`},
		{`{"nonsense":null}`, `unknown_field Definition: "nonsense" is not a key of a webhook`},
		{`{"url":5}`, `invalid_type Definition: url must be a text`},
		{`{"isActive":"yes"}`, `invalid_boolean Definition: isActive must be true or false`},
		{`{"secret":5}`, `invalid_type Definition: secret must be a text`},
		{`{"ordering":"Record"}`, `invalid_option Definition: ordering must be one of: record, webhook, none`},
		{`{"signature":"sha1"}`, `invalid_option Definition: signature must be one of: objectstack, standard, both`},
		{`{"maxConcurrency":0}`, `min_value Definition: maxConcurrency must be an integer from 1 to 64`},
		{`{"maxConcurrency":65}`, `max_value Definition: maxConcurrency must be an integer from 1 to 64`},
		{`{"expireAfterMs":999}`, `min_value Definition: expireAfterMs must be an integer from 1000 to 2592000000`},
		{`{"rateLimit":{}}`, `required Definition: rateLimit.perSecond is required`},
		{`{"rateLimit":{"perSecond":0}}`, `invalid_value Definition: rateLimit.perSecond must be a number from 0.001 to 10000`},
		{`{"rateLimit":{"perSecond":1,"burst":0}}`, `min_value Definition: rateLimit.burst must be an integer from 1 to 10000`},
		{`{"rateLimit":{"perSecond":1,"per":"s"}}`, `unknown_field Definition: "per" is not a key of rateLimit`},
		{`{"retryPolicy":{"maxRetries":11}}`, `max_value Definition: retryPolicy.maxRetries must be an integer from 0 to 10`},
		{`{"retryPolicy":{"initialDelayMs":99}}`, `min_value Definition: retryPolicy.initialDelayMs must be an integer from 100 to 2678400000`},
		{`{"retryPolicy":{"maxDelayMs":999}}`, `min_value Definition: retryPolicy.maxDelayMs must be an integer from 1000 to 2678400000`},
		{`{"retryPolicy":{"backoffStrategy":"none"}}`, `invalid_option Definition: retryPolicy.backoffStrategy must be one of: fixed, linear, exponential`},
		{`{"payloadFields":"name"}`, `invalid_type Definition: payloadFields must be a list of field names`},
		{`{"payloadFields":["a.b"]}`, `invalid_value Definition: payloadFields: "a.b" is not a field name`},
		{`{"authentication":{"credentials":{"token":"t0p"}}}`, `required Definition: authentication.type is required`},
		{`{"authentication":{"type":"digest"}}`, `invalid_option Definition: authentication.type must be one of: none, bearer, basic, api-key`},
		{`{"authentication":{"type":"bearer","token":"t0p"}}`, `unknown_field Definition: "token" is not a key of authentication`},
		{`{"tags":"a"}`, `invalid_type Definition: tags must be a list of texts`},
	} {
		_, problems := parse(t, tc.source)
		if !slices.Equal(problems, []string{tc.want}) {
			t.Errorf("%s:\n got %q\nwant %q", tc.source, problems, tc.want)
		}
	}
}

func TestDefinitionReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	_, problems := parse(t, `{"timeoutMs":0,"ordering":"x","nope":1}`)
	if len(problems) != 3 {
		t.Errorf("got %d problems: %q", len(problems), problems)
	}
}

func TestCase_SEC_02_secrets_leave_the_definition(t *testing.T) {
	t.Parallel()
	d, problems := parse(t, `{"secret":"s3cret","timeoutMs":2000,"headers":{"X-A":"v4lue"},`+
		`"authentication":{"credentials":{"token":"t0ken"},"type":"bearer"}}`)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if got, want := string(d.members.appendJSON(nil)), `{"timeoutMs":2000,"authentication":{"type":"bearer"}}`; got != want {
		t.Errorf("definition %s, want %s", got, want)
	}
	if !d.moved || d.secret != (secretInput{secretSet, "s3cret"}) || d.headers != (secretInput{secretSet, `{"X-A":"v4lue"}`}) ||
		d.credentials != (secretInput{secretSet, `{"token":"t0ken"}`}) {
		t.Errorf("got %v %+v %+v %+v", d.moved, d.secret, d.headers, d.credentials)
	}
}

func TestCase_HDR_07_empty_headers(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]secretInput{
		`{}`:                         {state: secretAbsent},
		`{"headers":{}}`:             {state: secretClear},
		`{"headers":null}`:           {state: secretClear},
		`{"headers":"` + mask + `"}`: {state: secretKeep},
		`{"headers":"secret:sec_1"}`: {state: secretKeep},
	} {
		d, problems, err := parseDefinition([]byte(source))
		if err != nil || len(problems) > 0 || d.headers != want {
			t.Errorf("%s: got %+v, %v, %v, want %+v", source, d.headers, problems, err, want)
		}
	}
	for source, want := range map[string]string{
		`{"headers":[]}`:                    `they must be a flat JSON object of texts`,
		`{"headers":5}`:                     `they must be a flat JSON object of texts`,
		`{"headers":"nonsense"}`:            `they must be a flat JSON object of texts`,
		`{"headers":{"X-A":5}}`:             `header "X-A" is not a text: the object must be flat and hold texts only`,
		`{"headers":{"X-A":{"b":"c"}}}`:     `header "X-A" is not a text: the object must be flat and hold texts only`,
		`{"headers":{"X-A":null}}`:          `header "X-A" is not a text: the object must be flat and hold texts only`,
		`{"headers":{"X-A":"1","X-A":"2"}}`: `header "X-A" stands there twice`,
	} {
		_, _, err := parseDefinition([]byte(source))
		if err == nil || err.Error() != `custom headers refused for "sys_webhook.headers_secret": `+want {
			t.Errorf("%s: got %v, want %s", source, err, want)
		}
	}
}

func TestInteger(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]int64{
		"0": 0, "-0": 0, "0e999999": 0, "7": 7, "-7": -7, "1e3": 1000, "1.5e1": 15, "1200e-2": 12,
		"0.00e-5": 0, "123456789012345678": 123456789012345678, "0.001e3": 1,
	} {
		if got, err := integer(json.RawMessage(source)); err != nil || got != want {
			t.Errorf("integer(%s) = %d, %v, want %d", source, got, err, want)
		}
	}
}

// FuzzDefinition holds what every accepted definition must keep: the secrets
// are gone from the text, and the text that is stored reads back the same.
func FuzzDefinition(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"timeoutMs":1e3,"triggers":"create, update"}`, `{"secret":"s","headers":{"A":"b"}}`,
		`{"authentication":{"type":"basic","credentials":{"username":"u","password":"p"}}}`,
		`{"retryPolicy":{"maxRetries":3}}`, `{"rateLimit":{"perSecond":1.5}}`, `{"a":1,"a":2}`, `{"payloadFields":["x"]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		d, problems, headers := parseDefinition(source)
		if d == nil || len(problems) > 0 || headers != nil {
			return
		}
		stored := d.members.appendJSON(nil)
		if !json.Valid(stored) {
			t.Fatalf("%q is stored as %q, which is no JSON", source, stored)
		}
		again, problems, headers := parseDefinition(stored)
		if len(problems) > 0 || headers != nil {
			t.Fatalf("%q is stored as %q, which is refused: %v %v", source, stored, problems, headers)
		}
		if again.moved || again.secret.state != secretAbsent || again.headers.state != secretAbsent || again.credentials.state != secretAbsent {
			t.Fatalf("%q is stored as %q, which still holds a secret", source, stored)
		}
		if again.rules.timeoutMS != d.rules.timeoutMS || again.rules.ordering != d.rules.ordering {
			t.Fatalf("%q and %q differ in their rules", source, stored)
		}
		if ms := d.rules.timeoutMS; ms != 0 && (ms < minTimeoutMS || ms > maxTimeoutMS) {
			t.Fatalf("%q sets a timeout of %d ms", source, ms)
		}
		if strings.Contains(string(stored), `"credentials"`) && !strings.Contains(string(source), `"credentials"`) {
			t.Fatalf("%q grew credentials", source)
		}
	})
}
