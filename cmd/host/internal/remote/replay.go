package remote

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/objecthost/objecthost/cmd/host/internal/client"
)

// replayFlags are those of replay.
type replayFlags struct {
	webhook, from, to string
	perSecond         int
	dryRun, detach    bool
}

// replayPoll is the time between two looks at a job.
const replayPoll = 300 * time.Millisecond

func (s *session) replay() *cobra.Command {
	var in replayFlags
	c := &cobra.Command{
		Use: "replay", Short: "Deliver the events of a time to a webhook once more", Args: cobra.NoArgs,
		Long: "Matches the events that the log holds of a time by what the webhook says now, and delivers them as new deliveries.\n" +
			"The host does it as a job, which goes on after restarts and without this command.",
		Example: "  host replay --webhook accounts --from 2026-01-31T12:00:00Z --to 2026-01-31T13:00:00Z --dry-run",
		RunE:    func(c *cobra.Command, _ []string) error { return s.startReplay(c, in) },
	}
	flags := c.Flags()
	flags.StringVar(&in.webhook, "webhook", "", "the webhook, by name or ID (required)")
	flags.StringVar(&in.from, "from", "", "time of the first event, in ISO 8601 (required)")
	flags.StringVar(&in.to, "to", "", "time after the last event, in ISO 8601 (required)")
	flags.IntVar(&in.perSecond, "per-second", 0, "deliveries per second, 1 to 1000 (default 50)")
	flags.BoolVar(&in.dryRun, "dry-run", false, "only count the deliveries")
	flags.BoolVar(&in.detach, "detach", false, "do not wait for the end of the job")
	for _, name := range []string{"webhook", "from", "to"} {
		_ = c.MarkFlagRequired(name) // the flag exists
	}
	show := &cobra.Command{
		Use: "show JOB", Short: "Show how far a replay is", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return s.jobCommand(c, http.MethodGet, "/api/v1/deliveries/jobs/"+url.PathEscape(args[0]))
		},
	}
	cancel := &cobra.Command{
		Use: "cancel JOB", Short: "End a replay; what it has delivered stays", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return s.jobCommand(c, http.MethodPost, "/api/v1/deliveries/jobs/"+url.PathEscape(args[0])+"/cancel")
		},
	}
	c.AddCommand(show, cancel)
	return c
}

func (s *session) startReplay(c *cobra.Command, in replayFlags) error {
	body := client.Record{"dryRun": in.dryRun}
	for flag, value := range map[string]string{"from": in.from, "to": in.to} {
		at, err := time.Parse(time.RFC3339Nano, value)
		if err != nil {
			return misuse("--"+flag, "%q is not a time such as 2026-01-31T12:00:00Z", value)
		}
		body[flag] = at.Format(time.RFC3339Nano)
	}
	if in.perSecond < 0 || in.perSecond > 1000 {
		return misuse("--per-second", "must be 1 to 1000, not %d", in.perSecond)
	}
	if in.perSecond > 0 {
		body["perSecond"] = in.perSecond
	}
	api, err := s.client()
	if err != nil {
		return err
	}
	id, err := webhookID(c, api, in.webhook)
	if err != nil {
		return err
	}
	job, err := callJob(c.Context(), api, http.MethodPost, "/api/v1/webhooks/"+url.PathEscape(id)+"/replay", body)
	if err != nil {
		return err
	}
	if in.dryRun {
		return s.show(c, job, func(w io.Writer) error { return pairs(w, "matched", text(job["matched"])) })
	}
	if !in.detach {
		if job, err = s.awaitJob(c, api, job); err != nil {
			return err
		}
	}
	return s.showJob(c, job)
}

// awaitJob waits for the job's end and tells on stderr how far it is.
func (s *session) awaitJob(c *cobra.Command, api *client.Client, job client.Record) (client.Record, error) {
	id, told := text(job["id"]), ""
	_, _ = fmt.Fprintf(c.ErrOrStderr(), "job %s; it goes on without this command: host replay show %s\n", id, id)
	for text(job["status"]) == "running" {
		if line := text(job["redelivered"]) + " of " + text(job["matched"]); line != told {
			told = line
			_, _ = fmt.Fprintln(c.ErrOrStderr(), line)
		}
		timer := time.NewTimer(replayPoll)
		select {
		case <-c.Context().Done():
			timer.Stop()
			return nil, c.Context().Err()
		case <-timer.C:
		}
		next, err := callJob(c.Context(), api, http.MethodGet, "/api/v1/deliveries/jobs/"+url.PathEscape(id), nil)
		if err != nil {
			return nil, err
		}
		job = next
	}
	return job, nil
}

func (s *session) jobCommand(c *cobra.Command, method, path string) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	job, err := callJob(c.Context(), api, method, path, nil)
	if err != nil {
		return err
	}
	return s.showJob(c, job)
}

func callJob(ctx context.Context, api *client.Client, method, path string, body any) (client.Record, error) {
	var answer struct {
		Data client.Record `json:"data"`
	}
	return answer.Data, api.Do(ctx, method, path, body, &answer)
}

// showJob shows a job, and fails when the job did.
func (s *session) showJob(c *cobra.Command, job client.Record) error {
	err := s.show(c, job, func(w io.Writer) error {
		return pairs(w, "job", text(job["id"]), "status", text(job["status"]), "matched", text(job["matched"]),
			"delivered", text(job["redelivered"]), "error", text(job["error"]))
	})
	if err == nil && text(job["status"]) == "failed" {
		err = fmt.Errorf("the job failed: %s", text(job["error"]))
	}
	return err
}
