package data_test

import (
	"testing"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
)

func TestTransaction(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account()}, func(t *testing.T, b *bundle) {
		steps := func(text string) []data.Step {
			var out []data.Step
			value := must(data.DecodeJSON([]byte(text)))(t).([]any)
			for _, item := range value {
				m := item.(map[string]any)
				step := data.Step{Object: m["object"].(string), Action: m["action"].(string)}
				step.ID, _ = m["id"].(string)
				step.Data, _ = m["data"].(map[string]any)
				out = append(out, step)
			}
			return out
		}
		records := must(b.Transaction(b.as, steps(`[{"object":"account","action":"create","data":{"name":"T1"}},{"object":"account","action":"create","data":{"name":{"$ref":0}}}]`)))(t)
		equal(t, "ref", records[1].Record["name"], records[0].ID)
		b.log.clear(t)
		_, err := b.Transaction(b.as, steps(`[{"object":"account","action":"create","data":{"name":"T2"}},{"object":"account","action":"update","id":"none","data":{}}]`))
		refused(t, err, `{"error":"Record none not found in account","code":"RECORD_NOT_FOUND","object":"account","operation":1}`)
		_, err = b.Transaction(b.as, steps(`[{"object":"account","action":"create","data":{"name":{"$ref":0}}}]`))
		refused(t, err, `{"error":"operation 0: $ref must be the number of an earlier operation","code":"INVALID_REQUEST","object":"account","operation":0}`)
		_, err = b.Transaction(b.as, steps(`[{"object":"account","action":"update","data":{"name":"x"}}]`))
		refused(t, err, `{"error":"operation 0: an id is required to update","code":"INVALID_REQUEST","object":"account","operation":0}`)
		equal(t, "events", len(b.log.all(t)), 0)
		page := must(b.Find(b.as, "account", data.Query{}))(t)
		equal(t, "records", len(page.Records), 2)
	})
}
