package data_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
)

// csvOf makes a table of n accounts.
func csvOf(from, n int) string {
	var b strings.Builder
	b.WriteString("name,code,annual_revenue\n")
	for i := range n {
		fmt.Fprintf(&b, "Row %d,c%d,%d\n", from+i, from+i, i)
	}
	return b.String()
}

// running runs import jobs until the test, or stop, ends.
func running(t *testing.T, b *bundle) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); b.RunImports(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// ended waits for a job.
func ended(t *testing.T, b *bundle, id string) data.ImportJob {
	t.Helper()
	var job data.ImportJob
	eventually(t, "the job has ended", func() bool {
		job = must(b.ImportJob(b.as, id))(t)
		return job.CompletedAt != ""
	})
	return job
}

func count(t *testing.T, b *bundle) int {
	t.Helper()
	return *must(b.Find(b.as, "account", data.Query{Limit: ptr(1)}))(t).Total
}

func TestImportJob(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account(), data.ImportJobSchema()}, func(t *testing.T, b *bundle) {
		running(t, b)
		kept := create(t, b, "account", data.Record{"name": "before", "code": "c3"})
		req := data.ImportRequest{Mode: data.ImportUpsert, MatchFields: []string{"code"}}
		text := csvOf(0, 450) + "Bad,bad,-1\n"
		job := must(b.StartImport(b.as, "account", req, data.ImportSource{CSV: text}))(t)
		equal(t, "at first", []any{job.Object, job.Status, job.Total}, []any{"account", data.JobPending, 451})
		job = ended(t, b, job.ID)
		equal(t, "counts", []any{job.Status, job.Processed, job.Created, job.Updated, job.Errors, job.Percent, job.Undoable},
			[]any{data.JobSucceeded, 451, 449, 1, 1, 100.0, true})
		_, results, cut, err := b.ImportResults(b.as, job.ID)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "last row", outcomes(results[450:]), "451 failed annual_revenue VALIDATION_FAILED")
		equal(t, "report", []any{len(results), cut}, []any{451, false})
		equal(t, "records", count(t, b), 450)
		record := must(b.Get(b.as, "account", kept))(t)
		equal(t, "updated", record["name"], "Row 3")

		job, done, err := b.UndoImport(b.as, job.ID)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "undone", []any{done.Deleted, done.Restored, done.Failed, job.RevertedAt != "", job.Undoable}, []any{449, 1, 0, true, false})
		equal(t, "restored", must(b.Get(b.as, "account", kept))(t)["name"], "before")
		equal(t, "records", count(t, b), 1)
		_, _, err = b.UndoImport(b.as, job.ID)
		equal(t, "once more", data.IsCode(err, data.CodeNotUndoable), true)
	})
}

// TestImportJobGoesOn ends the runner in the middle, and another engine takes
// over: no row comes twice, none is left out.
func TestImportJobGoesOn(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account(), data.ImportJobSchema()}, func(t *testing.T, b *bundle) {
		half := make(chan struct{}, 1)
		b.WithinWrite(data.ImportJobObject, func(_ context.Context, c *data.Change) error {
			if fmt.Sprint(c.Changes["processed"]) == "400" {
				half <- struct{}{}
			}
			return nil
		})
		stop := running(t, b)
		job := must(b.StartImport(b.as, "account", data.ImportRequest{Mode: data.ImportInsert}, data.ImportSource{CSV: csvOf(0, 2000)}))(t)
		<-half
		stop()
		second := must(data.New(t.Context(), b.db, data.Config{Events: b.log, Authorizer: allowAll{}, Now: b.clock.now}))(t)
		if err := second.Define(t.Context(), account(), data.ImportJobSchema()); err != nil {
			t.Fatal(err)
		}
		other := *b
		other.Engine = second
		running(t, &other)
		job = ended(t, &other, job.ID)
		equal(t, "counts", []any{job.Status, job.Created, job.Errors}, []any{data.JobSucceeded, 2000, 0})
		equal(t, "records", count(t, b), 2000)
	})
}

func TestImportJobIsCancelled(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account(), data.ImportJobSchema()}, func(t *testing.T, b *bundle) {
		job := must(b.StartImport(b.as, "account", data.ImportRequest{Mode: data.ImportInsert}, data.ImportSource{Rows: []data.Record{{"name": "x"}}}))(t)
		job = must(b.CancelImport(b.as, job.ID))(t)
		equal(t, "status", job.Status, data.JobCancelled)
		_, err := b.CancelImport(b.as, job.ID)
		equal(t, "twice", data.IsCode(err, data.CodeConflict), true)
		running(t, b)
		later := must(b.StartImport(b.as, "account", data.ImportRequest{Mode: data.ImportInsert}, data.ImportSource{Rows: []data.Record{{"name": "y"}}}))(t)
		ended(t, b, later.ID)
		equal(t, "records", count(t, b), 1)
	})
}

// TestImportJobsAreTheCallers hides jobs from others and lists one's own.
func TestImportJobsAreTheCallers(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account(), data.ImportJobSchema()}, func(t *testing.T, b *bundle) {
		var ids []string
		for range 3 {
			b.clock.advance(time.Second)
			ids = append(ids, must(b.StartImport(b.as, "account", data.ImportRequest{Mode: data.ImportInsert}, data.ImportSource{}))(t).ID)
		}
		jobs := must(b.ImportJobs(b.as, "account", data.JobPending, 2, 1))(t)
		equal(t, "page", []string{jobs[0].ID, jobs[1].ID}, []string{ids[1], ids[0]})
		other := identity.With(t.Context(), identity.Principal{UserID: "other"})
		equal(t, "others", len(must(b.ImportJobs(other, "", "", 10, 0))(t)), 0)
		_, err := b.ImportJob(other, ids[0])
		equal(t, "another's", data.IsCode(err, data.CodeRecordNotFound), true)
		_, err = b.ImportJob(t.Context(), ids[0])
		equal(t, "anonymous", data.IsCode(err, data.CodeUnauthenticated), true)
		// What the host keeps for itself does not leave it.
		record := must(b.Get(b.as, data.ImportJobObject, ids[0]))(t)
		for _, name := range []string{"payload", "principal", "request", "owner", "undo"} {
			if _, shown := record[name]; shown {
				t.Errorf("%s is shown", name)
			}
		}
	})
}

func TestImportJobRefuses(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account(), data.ImportJobSchema()}, func(t *testing.T, b *bundle) {
		for want, text := range map[string]string{
			`{"error":"Unknown field 'nope' on object 'account'","code":"INVALID_FIELD","field":"nope","object":"account"}`:                       "name,nope\na,b\n",
			`{"error":"The CSV is wrong in line 3: wrong number of fields.","code":"INVALID_REQUEST"}`:                                            "name,code\na,b\nc\n",
			`{"error":"The CSV is wrong in line 3: extraneous or missing \" in quoted-field.","code":"INVALID_REQUEST"}`:                          "name\n\"a\nb",
			`{"error":"Column 2 of the CSV has no name of its own.","code":"INVALID_REQUEST"}`:                                                    "name,name\n",
			`{"error":"An import job holds at most 50000 rows, got 50001","code":"BATCH_TOO_LARGE","count":50001,"max":50000,"object":"account"}`: csvOf(0, 50_001),
		} {
			_, err := b.StartImport(b.as, "account", data.ImportRequest{Mode: data.ImportInsert}, data.ImportSource{CSV: text})
			refused(t, err, want)
		}
		equal(t, "jobs", len(must(b.ImportJobs(b.as, "", "", 10, 0))(t)), 0)
	})
}
