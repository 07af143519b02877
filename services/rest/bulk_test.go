package rest

import (
	"fmt"
	"strings"
	"testing"
)

func TestCreateMany(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		answer := h.get(201, h.do("POST", "/api/v1/data/account/createMany",
			`[{"name":"M1","industry":"finance","annual_revenue":10,"active":false},{"name":"M2"}]`))
		if answer["object"] != "account" || encode(answer["count"]) != "2" || names(answer) != "M1,M2" {
			t.Errorf("createMany = %v", answer)
		}
		if got := keysOf(answer); encode(got) != `["count","object","records"]` {
			t.Errorf("keys %v", got)
		}
		h.same(h.get(400, h.do("POST", "/api/v1/data/account/createMany", `[{"name":"aon"},{"industry":"zz"}]`)),
			`{"error":"Name is required; Industry must be one of: technology, finance, retail","code":"VALIDATION_FAILED","object":"account",
			"fields":[{"field":"name","code":"required","message":"Name is required","label":"Name"},
			{"field":"industry","code":"invalid_option","message":"Industry must be one of: technology, finance, retail","label":"Industry",
			"constraint":{"allowed":"technology, finance, retail"},"options":["technology","finance","retail"]}]}`)
		h.get(201, h.do("POST", "/api/v1/data/account", `{"name":"first","code":"dup"}`))
		if got := h.get(409, h.do("POST", "/api/v1/data/account/createMany", `[{"name":"aon"},{"name":"aon","code":"dup"}]`))["code"]; got != "UNIQUE_VIOLATION" {
			t.Errorf("duplicate: %v", got)
		}
		h.same(h.get(200, h.do("GET", "/api/v1/data/account?top=1&name=aon", "")),
			`{"object":"account","records":[],"total":0,"hasMore":false}`)
		h.same(h.get(201, h.do("POST", "/api/v1/data/account/createMany", `[]`)), `{"object":"account","records":[],"count":0}`)
		for body, message := range map[string]string{
			`{"name":"x"}`:     "Request body must be a JSON array of records.",
			`[{"name":"x"},1]`: "Record 1 of the request body must be a JSON object.",
		} {
			h.same(h.get(400, h.do("POST", "/api/v1/data/account/createMany", body)),
				`{"error":"`+message+`","code":"INVALID_REQUEST"}`)
		}
	})
}

func TestUpdateMany(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		_, m := h.seed()
		answer := h.get(200, h.do("POST", "/api/v1/data/account/updateMany", `{"records":[
			{"id":"`+m[0]+`","data":{"annual_revenue":11}},{"id":"nope","data":{"annual_revenue":1}},{"id":"`+m[1]+`","data":{"annual_revenue":21}}],
			"options":{"continueOnError":true}}`))
		rows := answer["results"].([]any)
		first, third := rows[0].(map[string]any), rows[2].(map[string]any)
		h.same(answer, `{"success":false,"operation":"update","total":3,"succeeded":2,"failed":1,"results":[
			{"id":"`+m[0]+`","success":true,"index":0,"data":`+encode(first["data"])+`},
			{"id":"nope","success":false,"index":1,"errors":[{"code":"RECORD_NOT_FOUND","message":"Record nope not found in account","httpStatus":404}]},
			{"id":"`+m[1]+`","success":true,"index":2,"data":`+encode(third["data"])+`}]}`)
		if got := encode(first["data"].(map[string]any)["annual_revenue"]); got != "11" {
			t.Errorf("annual_revenue %s", got)
		}

		h.same(h.get(200, h.do("POST", "/api/v1/data/account/updateMany", `{"records":[
			{"id":"nope","data":{"annual_revenue":1}},{"id":"`+m[1]+`","data":{"annual_revenue":22}}]}`)),
			`{"success":false,"operation":"update","total":2,"succeeded":0,"failed":2,"results":[
			{"id":"nope","success":false,"index":0,"errors":[{"code":"RECORD_NOT_FOUND","message":"Record nope not found in account","httpStatus":404}]},
			{"id":"`+m[1]+`","success":false,"index":1,"errors":[{"code":"NOT_ATTEMPTED","message":"record 0 failed — Record nope not found in account; the batch stopped there. Set options.continueOnError to process the remaining records."}]}]}`)
		h.same(h.get(200, h.do("GET", "/api/v1/data/account/"+m[1]+"?select=annual_revenue", ""))["record"], `{"annual_revenue":21}`)
	})
}

func TestDeleteMany(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		_, m := h.seed()
		h.same(h.get(200, h.do("POST", "/api/v1/data/account/deleteMany", `{"ids":["`+m[0]+`","nope"],"options":{"continueOnError":true}}`)),
			`{"success":false,"operation":"delete","total":2,"succeeded":1,"failed":1,"results":[
			{"id":"`+m[0]+`","success":true,"index":0},
			{"id":"nope","success":false,"index":1,"errors":[{"code":"RECORD_NOT_FOUND","message":"Record nope not found in account","httpStatus":404}]}]}`)
		h.get(404, h.do("GET", "/api/v1/data/account/"+m[0], ""))
		h.get(200, h.do("GET", "/api/v1/data/account/"+m[1], ""))
	})
}

func TestBatch(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		answer := h.get(200, h.do("POST", "/api/v1/data/account/batch",
			`{"operation":"create","records":[{"data":{"name":"B1","code":"b1"}},{"data":{}}],"options":{"continueOnError":true}}`))
		row := answer["results"].([]any)[0].(map[string]any)
		h.same(answer, `{"success":false,"operation":"create","total":2,"succeeded":1,"failed":1,"results":[
			{"id":"*","success":true,"index":0,"data":`+encode(row["data"])+`},
			{"success":false,"index":1,"errors":[{"code":"VALIDATION_FAILED","message":"Name is required","httpStatus":400}]}]}`)

		h.same(h.get(200, h.do("POST", "/api/v1/data/account/batch",
			`{"operation":"create","records":[{"data":{"name":"B3"}},{"data":{}}],"options":{"atomic":true}}`)),
			`{"success":false,"operation":"create","total":2,"succeeded":0,"failed":2,"results":[
			{"id":"*","success":false,"index":0,"errors":[{"code":"ROLLED_BACK","message":"record 1 failed — Name is required"}]},
			{"success":false,"index":1,"errors":[{"code":"VALIDATION_FAILED","message":"Name is required","httpStatus":400}]}]}`)
		h.same(h.get(200, h.do("GET", "/api/v1/data/account?top=1&name=B3", "")), `{"object":"account","records":[],"total":0,"hasMore":false}`)

		id := answer["results"].([]any)[0].(map[string]any)["id"].(string)
		h.same(h.get(200, h.do("POST", "/api/v1/data/account/batch",
			`{"operation":"update","records":[{"id":"`+id+`","data":{"name":"B2"}}],"options":{"returnRecords":false}}`)),
			`{"success":true,"operation":"update","total":1,"succeeded":1,"failed":0,"results":[{"id":"`+id+`","success":true,"index":0}]}`)
	})
}

func TestBulkRefusals(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		for _, test := range []struct{ path, body, want string }{
			{"updateMany", `{}`, "'records' is required."},
			{"updateMany", `{"records":{}}`, "'records' must be a list."},
			{"updateMany", `{"records":[1]}`, "'records[0]' must be an object."},
			{"updateMany", `{"records":[{"id":1}]}`, "'records[0].id' must be text."},
			{"updateMany", `{"records":[{"id":"a","data":[]}]}`, "'records[0].data' must be an object."},
			{"updateMany", `{"records":[{"id":"a","values":{}}]}`, "'records[0].values' is not known; known are id, data."},
			{"updateMany", `{"records":[],"options":{"atomic":"yes"}}`, "'options.atomic' must be true or false."},
			{"updateMany", `{"records":[],"options":{"continueOnErrors":true}}`, "'options.continueOnErrors' is not known; known are atomic, returnRecords, continueOnError."},
			{"deleteMany", `{"records":[]}`, "'records' is not known; known are ids, options."},
			{"deleteMany", `{"ids":[1]}`, "'ids[0]' must be text."},
			{"batch", `[]`, "Request body must be a JSON object."},
		} {
			h.same(h.get(400, h.do("POST", "/api/v1/data/account/"+test.path, test.body)),
				`{"error":"`+test.want+`","code":"INVALID_REQUEST"}`)
		}
		if got := h.get(400, h.do("POST", "/api/v1/data/account/batch", `{"operation":"merge","records":[]}`))["code"]; got != "INVALID_REQUEST" {
			t.Errorf("unknown operation: %v", got)
		}
		rows := strings.TrimSuffix(strings.Repeat(`{"data":{"name":"x"}},`, 201), ",")
		answer := h.get(400, h.do("POST", "/api/v1/data/account/batch", `{"operation":"create","records":[`+rows+`]}`))
		if got := fmt.Sprint(answer["code"], answer["count"], answer["max"]); got != "BATCH_TOO_LARGE201200" && got != "BATCH_TOO_LARGE 201 200" {
			t.Errorf("too large: %v", answer)
		}
	})
}

func TestBulkPermissions(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		creator := makeKey(t, h.auth, "object:account:create")
		h.get(200, h.as(creator, "POST", "/api/v1/data/account/batch", `{"operation":"create","records":[{"data":{"name":"x"}}]}`))
		for _, operation := range []string{"update", "upsert", "delete"} {
			answer := h.get(403, h.as(creator, "POST", "/api/v1/data/account/batch", `{"operation":"`+operation+`","records":[]}`))
			if answer["code"] != "PERMISSION_DENIED" || answer["object"] != "account" {
				t.Errorf("%s: %v", operation, answer)
			}
		}
		h.same(h.get(405, h.do("POST", "/api/v1/data/ledger/batch", `{"operation":"create","records":[]}`))["code"], `"OBJECT_API_METHOD_NOT_ALLOWED"`)
	})
}
