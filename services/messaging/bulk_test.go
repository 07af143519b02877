package messaging_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/messaging/messagingtest"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// ended makes rows that have ended dead.
func (b *bundle) ended(t *testing.T, n int, edit func(int, *messaging.Request)) []string {
	t.Helper()
	b.receiver.Handle("/in", messagingtest.Status(400, ""))
	reqs := make([]messaging.Request, n)
	for i := range reqs {
		reqs[i] = b.request("/in")
		if edit != nil {
			edit(i, &reqs[i])
		}
	}
	var ids []string
	for _, e := range b.enqueue(t, reqs...) {
		ids = append(ids, e.ID)
		b.waitAttempt(t)
	}
	b.receiver.Handle("/in", messagingtest.Status(200, ""))
	return ids
}

func (b *bundle) jobEnds(t *testing.T, id string) messaging.Job {
	t.Helper()
	var job messaging.Job
	eventually(t, "the job ends", func() bool {
		var err error
		if job, err = b.Job(t.Context(), id, messaging.RedeliverOptions{}); err != nil {
			t.Fatal(err)
		}
		return job.Status != "running"
	})
	return job
}

// A job goes on where it was, after a stop and after a kill: each row is sent
// once more.
func TestBulkRedeliveryGoesOnAfterRestarts(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		ids := b.ended(t, 30, nil)
		job, err := b.RedeliverMany(t.Context(), messaging.BulkRequest{PerSecond: 30})
		if err != nil || job.Status != "running" || job.Matched != 30 {
			t.Fatalf("job = %+v, %v", job, err)
		}
		progress := func(b *bundle, n int) {
			t.Helper()
			eventually(t, fmt.Sprintf("%d rows", n), func() bool {
				now, err := b.Job(t.Context(), job.ID, messaging.RedeliverOptions{})
				return err == nil && now.Redelivered >= n
			})
		}
		progress(b, 3)
		b.halt(t)
		if n := b.number(t, `SELECT COUNT(*) FROM sys_http_job WHERE status = 'running' AND redelivered < 30`); n != 1 {
			t.Fatal("the job did not stop in its middle")
		}
		second := setup(t, db)
		progress(second, 12)
		second.halt(t)
		// A host that was killed leaves its claim behind.
		b.exec(t, `UPDATE sys_http_job SET claim_token = 'killed', claim_expires_at = updated_at + 500 WHERE status = 'running'`)
		third := setup(t, db, quick)
		if done := third.jobEnds(t, job.ID); done.Status != "done" || done.Redelivered != 30 || done.Skipped != 0 || done.FinishedAt.IsZero() {
			t.Errorf("job = %+v", done)
		}
		for _, id := range ids {
			if d := third.finished(t, id); d.Status != messaging.StatusSuccess || d.Round != 1 || d.Attempts != 1 {
				t.Errorf("delivery = %+v", d)
			}
		}
		if n := b.arrivals("/in"); n != 60 {
			t.Errorf("%d requests, want two for each row", n)
		}
	})
}

func TestBulkRedeliveryFollowsItsFilter(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		ids := b.ended(t, 6, func(i int, r *messaging.Request) {
			r.RefID = fmt.Sprintf("hook-%d", i%2)
			if i >= 4 {
				r.OrganizationID = "acme"
			}
			if i == 3 {
				r.Source = messaging.SourceFlow
			}
		})
		b.exec(t, `UPDATE sys_http_delivery SET created_at = 1000 WHERE id = ?`, ids[0])
		b.exec(t, `UPDATE sys_http_delivery SET response_code = 404 WHERE id = ?`, ids[1])
		b.exec(t, `UPDATE sys_http_delivery SET status = 'success' WHERE id = ?`, ids[2])
		for _, c := range []struct {
			name string
			req  messaging.BulkRequest
			want int
		}{
			{"all that failed", messaging.BulkRequest{}, 5},
			{"success", messaging.BulkRequest{Filter: messaging.BulkFilter{Status: []messaging.Status{messaging.StatusSuccess}}}, 1},
			{"source", messaging.BulkRequest{Filter: messaging.BulkFilter{Source: messaging.SourceFlow}}, 1},
			{"target", messaging.BulkRequest{Filter: messaging.BulkFilter{TargetKey: "hook-1"}}, 3},
			{"webhook", messaging.BulkRequest{Filter: messaging.BulkFilter{WebhookID: "hook-1"}}, 2},
			{"created to", messaging.BulkRequest{Filter: messaging.BulkFilter{CreatedTo: "1970-01-01T00:00:01.001Z"}}, 1},
			{"created from", messaging.BulkRequest{Filter: messaging.BulkFilter{CreatedFrom: "1970-01-01T00:00:01.001Z"}}, 4},
			{"code", messaging.BulkRequest{Filter: messaging.BulkFilter{ResponseCode: []int{404, 500}}}, 1},
			{"organization", messaging.BulkRequest{Scoped: true, OrganizationID: "acme"}, 2},
			{"another organization", messaging.BulkRequest{Scoped: true, OrganizationID: "other"}, 0},
			{"as of", messaging.BulkRequest{AsOf: time.UnixMilli(1000)}, 0},
		} {
			c.req.DryRun = true
			if job, err := b.RedeliverMany(t.Context(), c.req); err != nil || job.Matched != c.want || job.ID != "" {
				t.Errorf("%s: %+v, %v, want %d rows", c.name, job, err, c.want)
			}
		}
		if n := b.number(t, `SELECT COUNT(*) FROM sys_http_job`); n != 0 {
			t.Errorf("%d jobs of dry runs", n)
		}
		job, err := b.RedeliverMany(t.Context(), messaging.BulkRequest{Scoped: true, OrganizationID: "acme"})
		if err != nil {
			t.Fatal(err)
		}
		if done := b.jobEnds(t, job.ID); done.Status != "done" || done.Redelivered != 2 {
			t.Errorf("job = %+v", done)
		}
		if n := b.number(t, `SELECT COUNT(*) FROM sys_http_delivery WHERE round = 1 AND organization_id = 'acme'`); n != 2 {
			t.Errorf("%d rows of the organization were redelivered, want 2", n)
		}
		if n := b.number(t, `SELECT COUNT(*) FROM sys_http_delivery WHERE round > 0`); n != 2 {
			t.Errorf("%d rows were redelivered, want 2", n)
		}
	})
}

func TestBulkRedeliveryOverHTTP(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		b.ended(t, 20, func(_ int, r *messaging.Request) { r.OrganizationID = "acme" })
		mux := http.NewServeMux()
		for _, route := range messaging.NewPlugin(b.Service, nobody{}).Manifest().Contributes.Routes {
			if strings.Contains(route.Pattern, "redeliver") || strings.Contains(route.Pattern, "jobs") {
				if route.Permission != "webhooks.redeliver" {
					t.Errorf("%s asks for %q", route.Pattern, route.Permission)
				}
				mux.Handle(route.Method+" "+route.Pattern, route.Handler)
			}
		}
		call := func(organization, method, path, body string) (int, map[string]any) {
			t.Helper()
			req := httptest.NewRequestWithContext(
				identity.With(t.Context(), identity.Principal{UserID: "u1", OrganizationID: organization}), method, path, strings.NewReader(body))
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, req)
			var out map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
				t.Fatalf("%s %s: %v in %s", method, path, err, w.Body)
			}
			if data, ok := out["data"].(map[string]any); ok {
				return w.Code, data
			}
			return w.Code, out
		}
		const path = "/api/v1/deliveries/redeliver"
		for _, body := range []string{
			``, `[]`, `{}`, `{"filter":{"nope":1}}`, `{"filter":{"status":"pending"}}`, `{"filter":{},"perSecond":0}`, `{"filter":{},"perSecond":1001}`,
			`{"filter":{"createdFrom":"yesterday"}}`, `{"filter":{},"asOf":"soon"}`, `{"filter":{"webhookId":"a","source":"flow"}}`,
		} {
			if status, out := call("acme", "POST", path, body); status != 400 || out["success"] != false {
				t.Errorf("%s: %d %v", body, status, out)
			}
		}
		if status, out := call("acme", "POST", path, `{"filter":{"status":"dead","responseCode":400},"dryRun":true}`); status != 200 || out["matched"] != 20.0 || out["id"] != nil {
			t.Errorf("dry run: %d %v", status, out)
		}
		status, job := call("acme", "POST", path, `{"filter":{"status":["dead"]},"perSecond":5}`)
		if status != 202 || job["status"] != "running" || job["matched"] != 20.0 {
			t.Fatalf("job: %d %v", status, job)
		}
		at := "/api/v1/deliveries/jobs/" + job["id"].(string)
		if status, _ := call("other", "GET", at, ""); status != 404 {
			t.Errorf("another organization reads the job: %d", status)
		}
		if status, _ := call("other", "POST", at+"/cancel", ""); status != 404 {
			t.Errorf("another organization cancels the job: %d", status)
		}
		b.waitAttempt(t)
		status, out := call("acme", "POST", at+"/cancel", "")
		if status != 200 || out["status"] != "cancelled" || out["redelivered"].(float64) < 1 || out["redelivered"].(float64) > 10 {
			t.Errorf("cancel: %d %v", status, out)
		}
		if status, _ := call("acme", "POST", at+"/cancel", ""); status != 409 {
			t.Errorf("second cancel: %d", status)
		}
		if n := b.number(t, `SELECT COUNT(*) FROM sys_http_delivery WHERE round = 1`); float64(n) != out["redelivered"].(float64) {
			t.Errorf("%d rows were redelivered, the job says %v", n, out["redelivered"])
		}
		if status, out := call("acme", "GET", at, ""); status != 200 || out["status"] != "cancelled" || out["finishedAt"] == nil {
			t.Errorf("job: %d %v", status, out)
		}
	})
}

// nobody is an authorizer that no route of jobs asks.
type nobody struct{ identity.Authorizer }

// A job needs no poll: it is found by its process once it is committed, and by
// another one that hears of it.
func TestJobsBeginWithTheirCommit(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		var peers hub
		rarely := func(c *messaging.Config) { c.PollInterval, c.Nodes = time.Minute, peers.join() }
		b := setup(t, db, rarely)
		cfg := b.cfg
		cfg.Nodes = peers.join()
		idle, err := messaging.New(cfg) // never started
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []*messaging.Service{b.Service, idle} {
			var job messaging.Job
			err := db.InTx(t.Context(), func(ctx context.Context) (err error) {
				if job, err = s.StartJob(ctx, messaging.NewJob{Kind: "redeliver", Params: json.RawMessage(`{}`)}); err != nil {
					return err
				}
				// A look that came too early has time to find nothing.
				for range 50 {
					if _, err := s.Job(ctx, job.ID, messaging.RedeliverOptions{}); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if done := b.jobEnds(t, job.ID); done.Status != "done" {
				t.Errorf("job = %+v", done)
			}
		}
	})
}
