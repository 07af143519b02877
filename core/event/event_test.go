package event

import (
	"bytes"
	"encoding/json"
	"hash/fnv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var at = time.Date(2026, 3, 1, 23, 59, 58, 7_999_999, time.FixedZone("", 2*3600))

func TestAppendJSON(t *testing.T) {
	updated := Event{
		ID: "0190", Sequence: 42, Type: RecordUpdated, Object: "crm_account", RecordID: "r<1>",
		Changes: json.RawMessage(`{"n":12345678901234567890.10}`), Before: json.RawMessage(`{"object":"x"}`),
		After: json.RawMessage(`{"a":"<&>"}`), UserID: "u\u2028&", OrganizationID: "o\"\\\n\x01", Timestamp: at,
	}
	bulk := Event{ID: "0191", Type: RecordsDeleted, Object: "crm_account", Matched: 3, Timestamp: at}
	tests := []struct {
		name, action, want string
		event              Event
	}{
		{"updated", "", `{"id":"0190","sequence":42,"type":"data.record.updated","object":"crm_account","recordId":"r<1>",` +
			`"changes":{"n":12345678901234567890.10},"before":{"object":"x"},"after":{"a":"<&>"},` +
			`"userId":"u\u2028&","organizationId":"o\"\\\n\u0001","timestamp":"2026-03-01T21:59:58.007Z"}`, updated},
		{"delivery body", "updated", `{"id":"0190","sequence":42,"type":"data.record.updated",` +
			`"changes":{"n":12345678901234567890.10},"before":{"object":"x"},"after":{"a":"<&>"},` +
			`"userId":"u\u2028&","organizationId":"o\"\\\n\u0001",` +
			`"object":"crm_account","recordId":"r<1>","action":"updated","timestamp":"2026-03-01T21:59:58.007Z"}`, updated},
		{"bulk", "", `{"id":"0191","type":"data.records.deleted","object":"crm_account","matched":3,"timestamp":"2026-03-01T21:59:58.007Z"}`, bulk},
		{"zero", "", `{"id":"","type":"","object":"","timestamp":"0001-01-01T00:00:00.000Z"}`, Event{}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, err := tc.event.AppendJSON([]byte("before "), tc.action)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff("before "+tc.want, string(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPartition(t *testing.T) {
	// Numbers of the published FNV-1a-32 vectors, modulo 256.
	tests := map[string]uint32{"": 0x811c9dc5, "a": 0xe40c292c, "foobar": 0xbf9cf968, "chongo was here!\n": 0xd49930d5}
	for key, sum := range tests {
		if got, want := Partition(key), int(sum%256); got != want {
			t.Errorf("Partition(%q) = %d, want %d", key, got, want)
		}
	}
	e := Event{Object: "crm_account", RecordID: "é"}
	h := fnv.New32a()
	h.Write([]byte("crm_account:\xc3\xa9"))
	if got, want := e.Partition(), int(h.Sum32()%256); got != want {
		t.Errorf("Partition of %q = %d, want %d", e.Key(), got, want)
	}
}

func TestEnvelopeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SampledFrom([]json.RawMessage{nil, json.RawMessage(`{}`),
			json.RawMessage(`{"id":1e400,"b":[-0.10,"\u0000","</script>"]}`)})
		want := Event{
			ID: rapid.String().Draw(t, "id"), Sequence: rapid.Int64().Draw(t, "sequence"),
			Type: rapid.String().Draw(t, "type"), Object: rapid.String().Draw(t, "object"),
			Changes: raw.Draw(t, "changes"), Before: raw.Draw(t, "before"), After: raw.Draw(t, "after"),
			UserID: rapid.String().Draw(t, "user"), OrganizationID: rapid.String().Draw(t, "organization"),
			Timestamp: time.UnixMilli(rapid.Int64Range(0, 253402300799999).Draw(t, "time")).UTC(),
		}
		if rapid.Bool().Draw(t, "bulk") {
			want.Matched = rapid.Int64().Draw(t, "matched")
		} else {
			want.RecordID = rapid.String().Draw(t, "record")
		}
		for _, action := range []string{"", "updated"} {
			text, err := want.AppendJSON(nil, action)
			if err != nil {
				t.Fatal(err)
			}
			assertKeysOnce(t, text)
			var got Event
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

// assertKeysOnce fails unless text is a JSON object whose keys are distinct.
func assertKeysOnce(t *rapid.T, text []byte) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(text))
	if token, err := dec.Token(); err != nil || token != json.Delim('{') {
		t.Fatalf("no JSON object: %s", text)
	}
	seen := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		if seen[key.(string)] {
			t.Fatalf("key %v twice in %s", key, text)
		}
		seen[key.(string)] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
	}
}

// encoderText is what encoding/json makes of s without HTML escaping.
func encoderText(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s)
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

func FuzzAppendText(f *testing.F) {
	for _, s := range []string{"", "plain", "<>&", "\u2028\u2029\u2027", "\xff\xc3\x28", "\x00\b\f\n\r\t\x1f\x7f\"\\/", "日本\U0001f600", "\ufffd"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := string(appendText(nil, s)), encoderText(s); got != want {
			t.Errorf("appendText(%q) = %s, want %s", s, got, want)
		}
	})
}

func BenchmarkAppendJSON(b *testing.B) {
	e := Event{ID: "0190a6b2-7c1e-7000-8000-000000000000", Sequence: 1 << 40, Type: RecordCreated, Object: "crm_account",
		RecordID: "aB3dE6gH9jK2mN5p", After: json.RawMessage(`{"name":"Ada","amount":12.50}`), UserID: "u1", Timestamp: at}
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = e.AppendJSON(buf[:0], "created")
	}
}
