package webhooks

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/messaging/messagingtest"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// jobIs waits until a job satisfies a condition.
func (n *node) jobIs(t testing.TB, id, what string, done func(messaging.Job) bool) messaging.Job {
	t.Helper()
	deadline := time.After(wide)
	for {
		job, err := n.outbox.Job(t.Context(), id, messaging.RedeliverOptions{})
		fatal(t, err)
		if done(job) {
			return job
		}
		select {
		case <-n.tried:
		case <-time.After(20 * time.Millisecond): // a step may have made nothing
		case <-deadline:
			t.Fatalf("the job is never %s: %+v", what, job)
		}
	}
}

func ended(job messaging.Job) bool { return job.Status != "running" }

// all is a time that holds every event of a test.
func all() ReplayRequest {
	return ReplayRequest{From: time.UnixMilli(0), To: time.Now().Add(time.Hour), PerSecond: 1000}
}

// A webhook that was made after the events gets them all, each once and in
// order, although the host stops and another one goes on; a second replay
// delivers them again.
func TestReplayGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		r := messagingtest.New(t)
		keyring := keyOf(t)
		first := newNode(t, db, nodeConfig{keyring: keyring})
		var want []string
		for i := range 20 {
			id := first.create(t, "account", data.Record{"name": fmt.Sprint("a", i)})
			first.create(t, "note", data.Record{"name": "not watched"})
			first.update(t, "account", id, data.Record{"name": fmt.Sprint("b", i)})
			want = append(want, id+" created", id+" updated")
		}
		first.drain(t)
		hook := first.hook(t, data.Record{"url": r.URL + "/late", "triggers": []any{"create", "update"}, "definition_json": `{"ordering":"webhook"}`})
		slow := all()
		slow.PerSecond = 40
		job, err := first.plugin.service.Replay(asUser(t), hook, slow)
		fatal(t, err)
		if job.Kind != "replay" || job.Status != "running" || job.Matched != 40 || job.CreatedBy != "u1" {
			t.Errorf("job %+v", job)
		}
		first.jobIs(t, job.ID, "under way", func(j messaging.Job) bool { return j.Redelivered >= 4 })
		first.stop(t)
		second := newNode(t, db, nodeConfig{keyring: keyring})
		if half := second.jobIs(t, job.ID, "there", func(messaging.Job) bool { return true }); half.Redelivered >= 40 {
			t.Fatal("the job did not stop in its middle")
		}
		if done := second.jobIs(t, job.ID, "done", ended); done.Status != "done" || done.Redelivered != 40 || done.Skipped != 0 {
			t.Errorf("job %+v", done)
		}
		got, err := waitFor(t, r, 40)
		fatal(t, err)
		for i, req := range got {
			in := body(t, req)
			if is := fmt.Sprint(in["recordId"], " ", in["action"]); is != want[i] {
				t.Errorf("request %d is %s, want %s", i, is, want[i])
			}
		}
		for _, row := range second.deliveries(t) {
			if !strings.HasSuffix(row.Dedup, ":"+row.EventID+":replay:"+job.ID) {
				t.Errorf("dedup key %s", row.Dedup)
			}
		}
		again, err := second.plugin.service.Replay(asUser(t), hook, all())
		fatal(t, err)
		if done := second.jobIs(t, again.ID, "done", ended); done.Redelivered != 40 {
			t.Errorf("the second job %+v", done)
		}
		if _, err := waitFor(t, r, 80); err != nil {
			t.Error(err)
		}
	})
}

// A dry run counts what the webhook's present filters and the time choose, and
// stores nothing.
func TestReplayFollowsPresentFilters(t *testing.T) {
	clock := time.Now().Add(-time.Hour).Truncate(time.Second)
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		now := clock
		n := newNode(t, db, nodeConfig{still: true, now: func() time.Time { return now }})
		hook := n.hook(t, data.Record{"url": "https://example.com/", "triggers": []any{"create"}})
		var ids []string
		for range 5 {
			now = now.Add(time.Minute)
			ids = append(ids, n.create(t, "account", data.Record{"name": "a"}))
		}
		n.update(t, "account", ids[0], data.Record{"name": "b"})
		count := func(what string, from, to time.Time, want int) {
			t.Helper()
			job, err := n.plugin.service.Replay(system(t), hook, ReplayRequest{From: from, To: to, DryRun: true})
			fatal(t, err)
			if job.Matched != want || job.ID != "" {
				t.Errorf("%s: %+v, want %d", what, job, want)
			}
		}
		count("all", clock, now.Add(time.Minute), 5)
		count("from is included", clock.Add(2*time.Minute), now.Add(time.Minute), 4)
		count("to is excluded", clock, clock.Add(2*time.Minute), 1)
		count("none", now.Add(time.Second), now.Add(time.Minute), 0)
		fatal2(t)(n.engine.Update(system(t), ObjectName, hook, data.Record{"triggers": []any{"update"}}, data.Match{}))
		count("the present triggers", clock, now.Add(time.Minute), 1)
		fatal2(t)(n.engine.Update(system(t), ObjectName, hook, data.Record{"object_name": "note"}, data.Match{}))
		count("the present object", clock, now.Add(time.Minute), 0)
		if rows := n.deliveries(t); len(rows) != 0 {
			t.Errorf("a dry run stored %+v", rows)
		}
	})
}

func fatal2(t testing.TB) func(data.Result, error) {
	return func(_ data.Result, err error) { t.Helper(); fatal(t, err) }
}

func TestReplayIsCancelledAndFails(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		for range 10 {
			n.create(t, "account", data.Record{"name": "a"})
		}
		hook := n.hook(t, data.Record{"url": r.URL})
		slow := all()
		slow.PerSecond = 1
		job, err := n.plugin.service.Replay(asUser(t), hook, slow)
		fatal(t, err)
		if _, err := n.outbox.CancelJob(t.Context(), job.ID, messaging.RedeliverOptions{}); err != nil {
			t.Fatal(err)
		}
		if done := n.jobIs(t, job.ID, "ended", ended); done.Status != "cancelled" || done.Redelivered > 2 {
			t.Errorf("cancelled: %+v", done)
		}
		job, err = n.plugin.service.Replay(asUser(t), hook, slow)
		fatal(t, err)
		fatal(t, n.engine.Delete(system(t), ObjectName, hook, data.Match{}))
		if done := n.jobIs(t, job.ID, "ended", ended); done.Status != "failed" || done.Error != "the webhook was deleted" {
			t.Errorf("deleted: %+v", done)
		}
	})
}

func TestReplayRoute(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		user := identity.Principal{UserID: "u1"}
		n.create(t, "account", data.Record{"name": "a"})
		hook := n.hook(t, data.Record{"url": r.URL})
		off := n.hook(t, data.Record{"url": r.URL, "name": "off", "active": false})
		path := "/api/v1/webhooks/" + hook + "/replay"
		window := `"from":"2020-01-01T00:00:00Z","to":"` + event.FormatTime(time.Now().Add(time.Hour)) + `"`
		for _, c := range []struct {
			who        identity.Principal
			path, body string
			status     int
			code       string
		}{
			{user, path, `{}`, http.StatusBadRequest, "INVALID_REQUEST"},
			{user, path, `{"from":"yesterday","to":"2020-01-01T00:00:00Z"}`, http.StatusBadRequest, "INVALID_REQUEST"},
			{user, path, `{"from":"2020-01-02T00:00:00Z","to":"2020-01-01T00:00:00Z"}`, http.StatusBadRequest, "INVALID_REQUEST"},
			{user, path, `{` + window + `,"perSecond":1001}`, http.StatusBadRequest, "INVALID_REQUEST"},
			{user, path, `{` + window + `,"dryRun":"yes"}`, http.StatusBadRequest, "INVALID_REQUEST"},
			{user, path, `{` + window + `,"webhook":"x"}`, http.StatusBadRequest, "INVALID_REQUEST"},
			{user, path, `[`, http.StatusBadRequest, "INVALID_REQUEST"},
			{user, "/api/v1/webhooks/nope/replay", `{` + window + `}`, http.StatusNotFound, "RESOURCE_NOT_FOUND"},
			{identity.Principal{UserID: "u2", OrganizationID: "other"}, path, `{` + window + `}`, http.StatusNotFound, "RESOURCE_NOT_FOUND"},
			{user, "/api/v1/webhooks/" + off + "/replay", `{` + window + `}`, http.StatusConflict, "WEBHOOK_INACTIVE"},
		} {
			if status, _, answer := n.call(t, c.who, c.path, c.body); status != c.status || code(answer) != c.code {
				t.Errorf("%s %s: %d %v", c.path, c.body, status, answer)
			}
		}
		status, _, answer := n.call(t, user, path, `{`+window+`,"dryRun":true}`)
		counted, _ := answer["data"].(map[string]any)
		if status != http.StatusOK || counted["matched"] != 1.0 || counted["id"] != nil {
			t.Errorf("dry run: %d %v", status, answer)
		}
		status, _, answer = n.call(t, user, path, `{`+window+`,"perSecond":1000}`)
		job, _ := answer["data"].(map[string]any)
		if status != http.StatusAccepted || job["kind"] != "replay" || job["matched"] != 1.0 {
			t.Fatalf("replay: %d %v", status, answer)
		}
		if filter, _ := job["filter"].(map[string]any); filter["webhookId"] != hook {
			t.Errorf("filter %v", job["filter"])
		}
		n.jobIs(t, job["id"].(string), "done", func(j messaging.Job) bool { return j.Status == "done" })
		// Another organization does not see the job.
		if _, err := n.outbox.Job(t.Context(), job["id"].(string), messaging.RedeliverOptions{Scoped: true, OrganizationID: "other"}); !errors.Is(err, messaging.ErrNotFound) {
			t.Errorf("another organization's job: %v", err)
		}
	})
}
