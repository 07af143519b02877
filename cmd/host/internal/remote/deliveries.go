package remote

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sort"

	"github.com/spf13/cobra"

	"github.com/objecthost/objecthost/cmd/host/internal/client"
)

// statuses are those of a delivery.
var statuses = []string{"pending", "in_flight", "success", "failed", "dead"}

func (s *session) deliveries() *cobra.Command {
	var (
		status, webhook string
		limit           int
		useCurrent      bool
	)
	list := &cobra.Command{
		Use: "list", Short: "List the latest deliveries", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return s.listDeliveries(c, status, webhook, limit) },
	}
	list.Flags().StringVar(&status, "status", "", "only those that are pending, in_flight, success, failed or dead")
	list.Flags().StringVar(&webhook, "webhook", "", "only those of a webhook, by name or ID")
	list.Flags().IntVar(&limit, "limit", 30, "how many, 1 to 1000")
	_ = list.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(statuses, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	show := &cobra.Command{
		Use: "show ID", Short: "Show a delivery and its attempts", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return s.showDelivery(c, args[0]) },
	}
	redeliver := &cobra.Command{
		Use: "redeliver ID", Short: "Send a finished delivery again", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return s.redeliver(c, args[0], useCurrent) },
	}
	redeliver.Flags().BoolVar(&useCurrent, "use-current", false, "to the webhook's present URL, with its present headers")
	return group("deliveries", "Look at and repeat deliveries of a running host", list, show, redeliver)
}

func (s *session) listDeliveries(c *cobra.Command, status, webhook string, limit int) error {
	if limit < 1 || limit > 1000 {
		return misuse("--limit", "must be 1 to 1000, not %d", limit)
	}
	api, err := s.client()
	if err != nil {
		return err
	}
	where := client.Record{}
	if status != "" {
		where["status"] = status
	}
	if webhook != "" {
		id, err := webhookID(c, api, webhook)
		if err != nil {
			return err
		}
		where["ref_id"] = id
	}
	page, err := api.Find(c.Context(), deliveryObject, client.Query{
		Where: where, OrderBy: []client.OrderTerm{{Field: "created_at", Order: "desc"}, {Field: "id", Order: "desc"}}, Limit: limit,
	})
	if err != nil {
		return err
	}
	return s.show(c, page.Records, func(w io.Writer) error {
		t := newTable("ID", "CREATED", "EVENT", "STATUS", "TRIES", "RESULT", "URL")
		for _, r := range page.Records {
			t.add(text(r["id"]), text(r["created_at"]), text(r["label"]), text(r["status"]), text(r["attempts"]), result(r), text(r["url"]))
		}
		if err := t.print(w, widthOf(w, s.getenv)); err != nil {
			return err
		}
		if page.HasMore {
			_, err = fmt.Fprintf(w, "%d of %d\n", len(page.Records), page.Total)
		}
		return err
	})
}

// result is how a row's latest attempt ended.
func result(r client.Record) string {
	if e := text(r["error"]); e != "" {
		return e
	}
	if code := text(r["response_code"]); code != "" {
		return "HTTP " + code
	}
	return ""
}

// attemptResult is how one attempt ended.
func attemptResult(a client.Record) string {
	if e := text(a["error"]); e != "" {
		return e
	}
	return "HTTP " + text(a["responseCode"])
}

func (s *session) showDelivery(c *cobra.Command, id string) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	record, err := api.Get(c.Context(), deliveryObject, id)
	if err != nil {
		return err
	}
	var answer struct {
		Data struct {
			Attempts []client.Record `json:"attempts"`
		} `json:"data"`
	}
	if err := api.Do(c.Context(), http.MethodGet, "/api/v1/deliveries/"+url.PathEscape(id)+"/attempts", nil, &answer); err != nil {
		return err
	}
	both := client.Record{"delivery": record, "attempts": answer.Data.Attempts}
	return s.show(c, both, func(w io.Writer) error {
		if err := printRecord(w, record); err != nil {
			return err
		}
		if len(answer.Data.Attempts) == 0 {
			return nil
		}
		_, _ = fmt.Fprintln(w)
		t := newTable("ROUND", "TRY", "STARTED", "MS", "RESULT", "ADDRESS")
		for _, a := range answer.Data.Attempts {
			t.add(text(a["round"]), text(a["attempt"]), text(a["startedAt"]), text(a["durationMs"]), attemptResult(a), text(a["remoteAddr"]))
		}
		return t.print(w, widthOf(w, s.getenv))
	})
}

func (s *session) redeliver(c *cobra.Command, id string, useCurrent bool) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	body := client.Record{"deliveryId": id}
	if useCurrent {
		body["useCurrent"] = true
	}
	var answer struct {
		Data client.Record `json:"data"`
	}
	if err := api.Do(c.Context(), http.MethodPost, "/api/v1/webhooks/redeliver", body, &answer); err != nil {
		return err
	}
	return s.show(c, answer.Data, func(w io.Writer) error {
		return pairs(w, "delivery", text(answer.Data["id"]), "status", text(answer.Data["status"]))
	})
}

func sortedKeys(r client.Record) []string {
	names := make([]string, 0, len(r))
	for name := range r {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
