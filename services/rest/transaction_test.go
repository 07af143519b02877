package rest

import (
	"fmt"
	"strings"
	"testing"
)

func TestTransactionOverObjects(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		w := h.do("POST", "/api/v1/batch", `{"atomic":true,"operations":[
			{"object":"account","action":"create","data":{"name":"Acme","created_at":"2020-01-01T00:00:00.000Z"}},
			{"object":"contact","action":"create","data":{"name":"Ann","account":{"$ref":0}}},
			{"object":"contact","data":{"name":"Bob","account":{"$ref":0}}}]}`)
		answer := h.get(200, w)
		rows := answer["results"].([]any)
		account, ann := rows[0].(map[string]any), rows[1].(map[string]any)
		h.same([]any{account["name"], ann["name"], ann["account"], rows[2].(map[string]any)["account"]},
			`["Acme","Ann","`+account["id"].(string)+`","`+account["id"].(string)+`"]`)
		h.same(answer["droppedFields"], `[{"object":"account","fields":["created_at"],"reason":"readonly","index":0}]`)
		if got := w.Header().Get("X-Objectstack-Dropped-Fields"); got != "created_at;reason=readonly" {
			t.Errorf("dropped %q", got)
		}
		id := ann["id"].(string)
		answer = h.get(200, h.do("POST", "/api/v1/batch", `{"operations":[
			{"object":"contact","action":"update","id":"`+id+`","data":{"name":"Anna"}},
			{"object":"contact","action":"delete","id":"`+rows[2].(map[string]any)["id"].(string)+`"}]}`))
		h.same(answer["results"].([]any)[1], `{"id":"`+rows[2].(map[string]any)["id"].(string)+`"}`)
		h.same(h.get(200, h.do("GET", "/api/v1/data/contact?select=name&top=9", "")),
			`{"object":"contact","records":[{"name":"Anna"}],"total":1,"hasMore":false}`)
	})
}

func TestTransactionIsAllOrNothing(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		for name, test := range map[string]struct {
			operations string
			status     int
			want       string
		}{
			"invalid record": {
				`{"object":"account","data":{"industry":"finance"}}`, 400,
				`{"error":"Name is required","code":"VALIDATION_FAILED","object":"account","operation":1,
				"fields":[{"field":"name","code":"required","message":"Name is required","label":"Name"}]}`,
			},
			"missing record": {
				`{"object":"account","action":"update","id":"none","data":{"name":"x"}}`, 404,
				`{"error":"Record none not found in account","code":"RECORD_NOT_FOUND","object":"account","operation":1}`,
			},
			"unknown object":    {`{"object":"nope","data":{}}`, 404, `{"error":"Object 'nope' is not registered","code":"OBJECT_NOT_FOUND","object":"nope"}`},
			"later reference":   {`{"object":"account","data":{"name":{"$ref":1}}}`, 400, `{"error":"operation 1: $ref must be the number of an earlier operation","code":"INVALID_REQUEST","object":"account","operation":1}`},
			"unknown action":    {`{"object":"account","action":"upsert","data":{"name":"x"}}`, 400, `{"error":"operation 1: action must be create, update or delete, not \"upsert\"","code":"INVALID_REQUEST","object":"account","operation":1}`},
			"closed object":     {`{"object":"ledger","data":{"title":"x"}}`, 405, `{"error":"Operation 'create' is not allowed on object 'ledger' through the API","code":"OBJECT_API_METHOD_NOT_ALLOWED","object":"ledger","allowed":["get","list"]}`},
			"no object":         {`{"data":{"name":"x"}}`, 400, `{"error":"'operations[1].object' is required.","code":"INVALID_REQUEST"}`},
			"unknown member":    {`{"object":"account","fields":{}}`, 400, `{"error":"'operations[1].fields' is not known; known are object, action, id, data.","code":"INVALID_REQUEST"}`},
			"reference as id":   {`{"object":"account","action":"update","id":{"$ref":0},"data":{}}`, 400, `{"error":"'operations[1].id' must be text.","code":"INVALID_REQUEST"}`},
			"update without id": {`{"object":"account","action":"update","data":{}}`, 400, `{"error":"operation 1: an id is required to update","code":"INVALID_REQUEST","object":"account","operation":1}`},
		} {
			body := `{"operations":[{"object":"account","data":{"name":"first"}},` + test.operations + `]}`
			t.Log(name)
			h.same(h.get(test.status, h.do("POST", "/api/v1/batch", body)), test.want)
		}
		h.same(h.get(400, h.do("POST", "/api/v1/batch", `{"operations":[],"atomic":false}`)),
			`{"error":"A transaction over several objects is always atomic; leave 'atomic' out or send true.","code":"BATCH_NOT_ATOMIC"}`)
		h.same(h.get(400, h.do("POST", "/api/v1/batch", fmt.Sprintf(`{"operations":[%s{"object":"account","data":{"name":"x"}}]}`,
			strings.Repeat(`{"object":"account","data":{"name":"x"}},`, 200)))),
			`{"error":"A transaction holds at most 200 operations, got 201","code":"BATCH_TOO_LARGE","count":201,"max":200}`)
		h.same(h.get(401, h.as("", "POST", "/api/v1/batch", `{"operations":[]}`)),
			`{"error":"UNAUTHENTICATED","code":"UNAUTHENTICATED","message":"Authentication is required to access this endpoint."}`)
		reader := makeKey(t, h.auth, "data:read", "object:account:create")
		h.same(h.get(403, h.as(reader, "POST", "/api/v1/batch", `{"operations":[{"object":"account","data":{"name":"x"}},{"object":"contact","data":{"name":"y"}}]}`)),
			`{"error":"You are not permitted to create records of 'contact'.","code":"PERMISSION_DENIED","object":"contact"}`)
		h.same(h.get(200, h.do("GET", "/api/v1/data/account?top=9", "")), `{"object":"account","records":[],"total":0,"hasMore":false}`)
	})
}
