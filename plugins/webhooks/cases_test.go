package webhooks

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/messaging/messagingtest"
)

// after is the after-image of a received body, member by member as sent.
func after(t testing.TB, r messagingtest.Request) map[string]json.RawMessage {
	t.Helper()
	var in struct {
		After map[string]json.RawMessage `json:"after"`
	}
	fatal(t, json.Unmarshal(r.Body, &in))
	return in.After
}

// Numbers reach the receiver with the digits that the API returns, on the first
// attempt and on a redelivery.
func TestCase_BOD_02_numbers_keep_their_digits(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		n.hook(t, data.Record{"url": r.URL + "/in", "triggers": "create"})
		for i, number := range []string{"9007199254740993", "-9007199254740993", "123456789012345678901234567890", "0.30000000000000004", "0.1", "-0", "1.10", "1E2"} {
			id := n.create(t, "account", data.Record{"name": "a", "annual_revenue": json.Number(number)})
			got, err := waitFor(t, r, 2*i+1)
			fatal(t, err)
			stored, err := n.engine.Get(system(t), "account", id)
			fatal(t, err)
			want := stored["annual_revenue"].(json.Number).String()
			if text := string(after(t, got[2*i])["annual_revenue"]); text != want {
				t.Errorf("%s arrived as %s, the API returns %s", number, text, want)
			}
			row := n.deliveries(t)[i]
			n.settled(t, row.ID, messaging.StatusSuccess)
			_, err = n.outbox.Redeliver(system(t), row.ID, messaging.RedeliverOptions{})
			fatal(t, err)
			got, err = waitFor(t, r, 2*i+2)
			fatal(t, err)
			if string(got[2*i].Body) != string(got[2*i+1].Body) {
				t.Errorf("%s: redelivered as %s, first %s", number, got[2*i+1].Body, got[2*i].Body)
			}
		}
		if _, err := n.engine.Create(system(t), "account", data.Record{"name": "a", "annual_revenue": json.Number("1e400")}); err == nil {
			t.Error("1e400 was stored")
		}
	})
}

func TestCase_BOD_06_records_hold_text_that_both_databases_store(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		n.hook(t, data.Record{"url": r.URL + "/in", "triggers": "create"})
		for _, name := range []string{"a\x00b", "a\xffb", "a\xed\xa0\x80b"} {
			if _, err := n.engine.Create(system(t), "account", data.Record{"name": name}); !data.IsCode(err, data.CodeValidationFailed) {
				t.Errorf("%q: %v", name, err)
			}
		}
		for i, name := range []string{"Ñandú 😀 客户 \u2028", "a\uFFFDb", "<a&b>"} {
			n.create(t, "account", data.Record{"name": name})
			got, err := waitFor(t, r, i+1)
			fatal(t, err)
			if in := body(t, got[i])["after"].(map[string]any); in["name"] != name {
				t.Errorf("%q arrived as %q", name, in["name"])
			}
		}
	})
}

// The envelope's keys are ours; a record's fields of the same names stay inside.
func TestCase_BOD_12_fields_do_not_forge_the_envelope(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		names := []string{"object", "action", "record_id", "timestamp", "sequence", "type", "event"}
		schema := object.Schema{Name: "forged"}
		values := data.Record{}
		for _, name := range names {
			schema.Fields = append(schema.Fields, object.Field{Name: name, Type: object.Text})
			values[name] = "forged"
		}
		fatal(t, n.engine.Define(t.Context(), schema))
		n.hook(t, data.Record{"url": r.URL + "/in", "object_name": "forged", "triggers": "create"})
		id := n.create(t, "forged", values)
		got, err := waitFor(t, r, 1)
		fatal(t, err)
		in := body(t, got[0])
		if in["object"] != "forged" || in["action"] != "created" || in["recordId"] != id || in["type"] != "data.record.created" || in["timestamp"] == "forged" {
			t.Errorf("envelope %s", got[0].Body)
		}
		inside := in["after"].(map[string]any)
		for _, name := range names {
			if inside[name] != "forged" {
				t.Errorf("field %s arrived as %v", name, inside[name])
			}
		}
	})
}

// The after-image is what is committed and what the API reads.
func TestCase_EVT_11_after_image_is_the_committed_state(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		n.hook(t, data.Record{"url": r.URL + "/in", "triggers": "create,update"})
		id := n.create(t, "account", data.Record{"name": "first"})
		for i, name := range []string{"second", "third"} {
			n.update(t, "account", id, data.Record{"name": name})
			got, err := waitFor(t, r, i+2)
			fatal(t, err)
			stored, err := n.engine.Get(system(t), "account", id)
			fatal(t, err)
			in := body(t, got[i+1])["after"].(map[string]any)
			for _, field := range []string{"id", "name", "created_at", "updated_at"} {
				if in[field] != stored[field] {
					t.Errorf("%s: sent %v, stored %v", field, in[field], stored[field])
				}
			}
		}
	})
}

// A time that the API shows works as a filter, and as an instant.
func TestCase_DBS_06_times_of_the_API_are_filters(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		r.Handle("/in", messagingtest.Status(503, "", "Retry-After: 3600"))
		fatal(t, n.engine.Define(t.Context(), messaging.Objects()...))
		n.hook(t, data.Record{"url": r.URL + "/in"})
		n.create(t, "account", data.Record{"name": "a"})
		_, err := waitFor(t, r, 1)
		fatal(t, err)
		id := n.deliveries(t)[0].ID
		var shown data.Record
		await(t, n.tried, "the retry", func(_ context.Context) bool {
			shown, err = n.engine.Get(system(t), messaging.DeliveryObject, id)
			fatal(t, err)
			return shown["next_retry_at"] != nil
		})
		for _, field := range []string{"next_retry_at", "last_attempted_at", "created_at", "updated_at"} {
			page, err := n.engine.Find(system(t), messaging.DeliveryObject, data.Query{Where: data.Eq(field, shown[field])})
			fatal(t, err)
			if len(page.Records) != 1 || page.Records[0]["id"] != id {
				t.Errorf("%s = %v finds %d rows", field, shown[field], len(page.Records))
			}
		}
	})
}

// Search and filters take wildcards as they are.
func TestCase_DBS_09_wildcards_are_literal(t *testing.T) {
	each(t, func(t *testing.T, n *node, _ *messagingtest.Receiver) {
		for _, name := range []string{"john_doe", "johnXdoe", "100%", "100 percent", `back\slash`, "Ünal"} {
			n.create(t, "account", data.Record{"name": name})
		}
		for text, want := range map[string][]string{
			"_": {"john_doe"}, "%": {"100%"}, `\`: {`back\slash`}, "n_d": {"john_doe"}, "JOHN": {"johnXdoe", "john_doe"}, "Ünal": {"Ünal"}, "*": nil,
		} {
			page, err := n.engine.Find(system(t), "account", data.Query{Search: text, SearchFields: []string{"name"}})
			fatal(t, err)
			var got []string
			for _, record := range page.Records {
				got = append(got, record["name"].(string))
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("search for %q finds %q, want %q", text, got, want)
			}
		}
	})
}
