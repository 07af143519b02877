package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/services/data"
)

func TestExport(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		h.create(`{"id":"a","name":"Ac,me","industry":"technology","annual_revenue":1500.50}`)
		h.create(`{"id":"b","name":"Quote \"B\"","active":false}`)
		for query, want := range map[string]string{
			"?format=csv&select=id,name,annual_revenue,active":     "id,name,annual_revenue,active\na,\"Ac,me\",1500.5,true\nb,\"Quote \"\"B\"\"\",,false\n",
			"?select=id&header=false&orderby=-id":                  "b\na\n",
			"?format=jsonl&select=id,industry&orderby=id":          `{"id":"a","industry":"technology"}` + "\n" + `{"id":"b","industry":null}` + "\n",
			"?format=json&select=id&limit=1":                       `[{"id":"a"}` + "\n]\n",
			"?format=json&filter=%5B%22name%22,%22=%22,%22x%22%5D": "[]\n",
			"?select=id&name=x":                                    "id\n",
		} {
			w := h.do("GET", "/api/v1/data/account/export"+query, "")
			if w.Code != 200 || w.Body.String() != want {
				t.Errorf("%s: %d %q, want %q", query, w.Code, w.Body, want)
			}
		}
		w := h.do("GET", "/api/v1/data/account/export?format=csv", "")
		if got := w.Header().Get("Content-Type") + " " + w.Header().Get("Content-Disposition"); got != `text/csv; charset=utf-8 attachment; filename="account.csv"` {
			t.Errorf("headers %q", got)
		}
		head, _, _ := strings.Cut(w.Body.String(), "\n")
		if head != "id,created_at,updated_at,organization_id,created_by,updated_by,owner_id,owning_business_unit_id,name,code,industry,annual_revenue,active" {
			t.Errorf("columns %s", head)
		}
		for query, want := range map[string]string{
			"?format=xlsx":    `501 {"error":"Lists are exported as csv, json or jsonl, not as xlsx.","code":"NOT_IMPLEMENTED"}`,
			"?format=xml":     `400 {"error":"'format' must be csv, json or jsonl.","code":"INVALID_REQUEST"}`,
			"?skip=1":         `400 {"error":"An export takes no offset, no cursor and no groups.","code":"INVALID_REQUEST"}`,
			"?header=maybe":   `400 {"error":"'header' must be true or false.","code":"INVALID_REQUEST"}`,
			"?filter=%5B1%5D": `400 {"error":"Malformed $filter: 1 stands where a condition should. A filter array is a comparison [field, operator, value], a logical node [\"and\"|\"or\", ...conditions], or a list of those.","code":"INVALID_FILTER","object":"account"}`,
		} {
			status, body, _ := strings.Cut(want, " ")
			w := h.do("GET", "/api/v1/data/account/export"+query, "")
			if fmt.Sprint(w.Code) != status {
				t.Errorf("%s: %d", query, w.Code)
			}
			h.same(parse(t, w.Body.String()), body)
		}
		h.get(403, h.as(makeKey(t, h.auth, "object:account:get"), "GET", "/api/v1/data/account/export", ""))
	})
}

func TestImport(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		h.same(h.get(200, h.do("POST", "/api/v1/data/account/import", `{"csv":"Company,code\nAcme,A\n,B\n","mapping":{"Company":"name","code":"code"}}`)),
			`{"object":"account","dryRun":false,"writeMode":"insert","total":2,"ok":1,"errors":1,"created":1,"updated":0,"skipped":0,"results":[
			{"row":1,"ok":true,"action":"created","id":"*"},{"row":2,"ok":false,"action":"failed","field":"name","code":"VALIDATION_FAILED","error":"Name is required"}]}`)
		h.same(h.get(200, h.do("POST", "/api/v1/data/account/import", `{"format":"json","rows":[{"name":"New","code":"A"},{"name":"Other","code":"C"}],"writeMode":"upsert","matchFields":["code"],"dryRun":true}`)),
			`{"object":"account","dryRun":true,"writeMode":"upsert","total":2,"ok":2,"errors":0,"created":1,"updated":1,"skipped":0,"results":[
			{"row":1,"ok":true,"action":"updated","id":"*"},{"row":2,"ok":true,"action":"created"}]}`)
		h.same(h.get(200, h.do("GET", "/api/v1/data/account?select=name&top=9", "")), `{"object":"account","records":[{"name":"Acme"}],"total":1,"hasMore":false}`)
		for body, want := range map[string]string{
			`{}`:                                 `400 {"error":"'rows' or 'csv' is needed, one of them.","code":"INVALID_REQUEST"}`,
			`{"rows":[],"csv":"name\n"}`:         `400 {"error":"'rows' or 'csv' is needed, one of them.","code":"INVALID_REQUEST"}`,
			`{"rows":[],"format":"csv"}`:         `400 {"error":"'format' does not fit: csv goes with 'csv', json with 'rows'.","code":"INVALID_REQUEST"}`,
			`{"rows":[1]}`:                       `400 {"error":"'rows[0]' must be an object.","code":"INVALID_REQUEST"}`,
			`{"rows":[],"wirteMode":"update"}`:   `400 {"error":"'wirteMode' is not known; known are format, csv, rows, xlsxBase64, sheet, mapping, mappingName, dryRun, writeMode, matchFields, runAutomations, treatAsHistorical, trimWhitespace, nullValues, createMissingOptions, skipBlankMatchKey.","code":"INVALID_REQUEST"}`,
			`{"xlsxBase64":"UEs="}`:              `501 {"error":"Workbooks are not imported: send csv or rows.","code":"NOT_IMPLEMENTED"}`,
			`{"rows":[],"runAutomations":false}`: `501 {"error":"Records are never written without their events: leave 'runAutomations' out.","code":"NOT_IMPLEMENTED"}`,
			`{"rows":[],"writeMode":"upsert"}`:   `400 {"error":"writeMode upsert needs matchFields","code":"INVALID_REQUEST","object":"account"}`,
			`{"rows":[` + strings.Repeat(`{"name":"x"},`, 5000) + `{}]}`: `400 {"error":"An import holds at most 5000 rows, got 5001: send them to import/jobs, or as a stream of text/csv or application/x-ndjson.","code":"BATCH_TOO_LARGE","count":5001,"max":5000}`,
		} {
			status, text, _ := strings.Cut(want, " ")
			w := h.do("POST", "/api/v1/data/account/import", body)
			if fmt.Sprint(w.Code) != status {
				t.Errorf("%.60s: %d %s", body, w.Code, w.Body)
			}
			h.same(parse(t, w.Body.String()), text)
		}
		h.get(405, h.do("POST", "/api/v1/data/ledger/import", `{"rows":[]}`))
		h.get(403, h.as(makeKey(t, h.auth, "object:account:create"), "POST", "/api/v1/data/account/import", `{"rows":[],"writeMode":"update","matchFields":["code"]}`))
	})
}

// TestStreamedImport takes what an export has written, in both formats.
func TestStreamedImport(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		var csv strings.Builder
		csv.WriteString("\ufeffname,code,annual_revenue\r\n")
		for i := range 450 {
			fmt.Fprintf(&csv, "\"Row, %d\",c%d,%d.5\r\n", i, i, i)
		}
		h.same(h.get(200, h.do("POST", "/api/v1/data/account/import", csv.String()+"bad,,-1\n", "Content-Type", "text/csv; charset=utf-8")),
			`{"object":"account","dryRun":false,"writeMode":"insert","total":451,"ok":450,"errors":1,"created":450,"updated":0,"skipped":0,"results":[
			{"row":451,"ok":false,"action":"failed","field":"annual_revenue","code":"VALIDATION_FAILED","error":"Annual Revenue must be ≥ 0"}]}`)
		lines := h.do("GET", "/api/v1/data/account/export?format=jsonl&select=code,annual_revenue", "").Body.String()
		h.same(h.get(200, h.do("POST", "/api/v1/data/account/import?writeMode=update&matchFields=code", lines, "Content-Type", "application/x-ndjson")),
			`{"object":"account","dryRun":false,"writeMode":"update","total":450,"ok":450,"errors":0,"created":0,"updated":450,"skipped":0,"results":[]}`)
		for body, want := range map[string]string{
			"{\"name\":\"first\"}\n{\"name\":\n":                   `{"error":"Line 2: invalid JSON: unexpected end of JSON input.","code":"INVALID_REQUEST"}`,
			strings.Repeat("{\"name\":\"x\"}\n", 200) + "nonsense": `{"error":"Line 201: invalid JSON: invalid character 'o' in literal null (expecting 'u'). The 200 rows in front of it were imported.","code":"INVALID_REQUEST"}`,
			`{"name":"` + strings.Repeat("x", 1<<20) + `"}`:        `{"error":"Line 1 is longer than 1048576 bytes.","code":"INVALID_REQUEST"}`,
		} {
			h.same(h.get(400, h.do("POST", "/api/v1/data/account/import", body, "Content-Type", "application/x-ndjson")), want)
		}
		h.same(h.get(400, h.do("POST", "/api/v1/data/account/import?dryrun=true", "name\n", "Content-Type", "text/csv")),
			`{"error":"Query parameter 'dryrun' is not supported here.","code":"UNSUPPORTED_QUERY_PARAM"}`)
		h.same(h.get(400, h.do("POST", "/api/v1/data/account/import", "name,nope\n", "Content-Type", "text/csv")),
			`{"error":"Unknown field 'nope' on object 'account'","code":"INVALID_FIELD","field":"nope","object":"account"}`)
	})
}

func TestStreamedImportHasALimitOfItsOwn(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		h.server.cfg.ImportLimit, h.server.cfg.BodyLimit = 2048, 1024
		rows := func(n int) string { return "name\n" + strings.Repeat("a row of sixteen\n", n) }
		h.get(200, h.do("POST", "/api/v1/data/account/import", rows(100), "Content-Type", "text/csv"))
		h.same(h.get(413, h.do("POST", "/api/v1/data/account/import", rows(200), "Content-Type", "text/csv")),
			`{"error":"Request body is larger than 2048 bytes.","code":"PAYLOAD_TOO_LARGE"}`)
	})
}

// TestExportBreaksOff hits a fault after the first page.
func TestExportBreaksOff(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		var many []data.Record
		for i := range 1500 {
			many = append(many, data.Record{"name": fmt.Sprint("n", i)})
		}
		if _, err := h.engine.CreateMany(asAdmin(t), "account", many); err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			h.server.Handler().ServeHTTP(&onePage{w, cancel}, r.WithContext(ctx))
		}))
		defer server.Close()
		resp := request(t, t.Context(), server.URL+"/api/v1/data/account/export?select=name", h.key)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if lines := strings.Count(string(body), "\n"); !errors.Is(err, io.ErrUnexpectedEOF) || lines != 1001 {
			t.Errorf("%d lines and %v, want a heading, one page, and the connection broken off", lines, err)
		}
	})
}

// onePage ends the request's context when the first page has gone out.
type onePage struct {
	http.ResponseWriter
	cancel context.CancelFunc
}

// Flush implements http.Flusher.
func (o *onePage) Flush() {
	o.ResponseWriter.(http.Flusher).Flush()
	o.cancel()
}

func TestImportJobs(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		job := h.get(201, h.do("POST", "/api/v1/data/account/import/jobs", `{"rows":[{"name":"a"},{"industry":"retail"}]}`))
		h.same(job, `{"jobId":"*","object":"account","status":"pending","total":2,"createdAt":"*"}`)
		id := job["jobId"].(string)
		h.get(200, h.do("GET", "/api/v1/data/import/jobs/"+id, ""))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); h.engine.RunImports(ctx) }()
		defer func() { stop(); <-done }()
		var progress map[string]any
		eventually(t, "the job has ended", func() bool {
			progress = h.get(200, h.do("GET", "/api/v1/data/import/jobs/"+id, ""))
			return progress["completedAt"] != nil
		})
		h.same(progress, `{"jobId":"`+id+`","object":"account","status":"succeeded","dryRun":false,"writeMode":"insert","total":2,"processed":2,"created":1,"updated":0,
			"skipped":0,"errors":1,"percentComplete":100,"undoable":true,"startedAt":"*","completedAt":"*","createdAt":"*"}`)
		results := h.get(200, h.do("GET", "/api/v1/data/import/jobs/"+id+"/results", ""))
		h.same([]any{results["jobId"], results["resultsTruncated"], results["results"]}, `["`+id+`",false,[{"row":1,"ok":true,"action":"created","id":"*"},
			{"row":2,"ok":false,"action":"failed","field":"name","code":"VALIDATION_FAILED","error":"Name is required"}]]`)
		jobs := h.get(200, h.do("GET", "/api/v1/data/import/jobs?object=account&status=succeeded", ""))["jobs"].([]any)
		h.same(jobs, `[`+encode(progress)+`]`)
		h.same(h.get(200, h.do("POST", "/api/v1/data/import/jobs/"+id+"/undo", "")), `{"success":true,"jobId":"`+id+`","object":"account","deleted":1,"restored":0,"failed":0}`)
		h.get(422, h.do("POST", "/api/v1/data/import/jobs/"+id+"/undo", ""))
		h.get(409, h.do("POST", "/api/v1/data/import/jobs/"+id+"/cancel", ""))
		h.get(404, h.as(makeKey(t, h.auth, "admin"), "GET", "/api/v1/data/import/jobs/"+id, ""))
		h.get(400, h.do("GET", "/api/v1/data/import/jobs?limit=201", ""))
		h.get(400, h.do("GET", "/api/v1/data/import/jobs?status=done", ""))
		h.get(401, h.as("", "GET", "/api/v1/data/import/jobs", ""))
	})
}
