package remote

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/objecthost/objecthost/cmd/host/internal/client"
)

const (
	webhookObject  = "sys_webhook"
	deliveryObject = "sys_http_delivery"
	attemptObject  = "sys_http_attempt"
)

// newWebhook holds the flags of webhook create.
type newWebhook struct {
	name, object, url, method, secret string
	triggers, headers                 []string
	generate                          bool
}

func (s *session) webhook() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List the webhooks", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return s.listWebhooks(c) },
	}
	var in newWebhook
	create := &cobra.Command{
		Use: "create NAME", Short: "Create a webhook", Args: cobra.ExactArgs(1),
		Example: "  host webhook create accounts --object account --trigger create,update --to https://example.com/hook --generate-secret",
		RunE: func(c *cobra.Command, args []string) error {
			in.name = args[0]
			return s.createWebhook(c, in)
		},
	}
	flags := create.Flags()
	flags.StringVar(&in.url, "to", "", "URL that is called (required)")
	flags.StringVar(&in.object, "object", "", "object whose records are watched; none means all that are not system objects")
	flags.StringSliceVar(&in.triggers, "trigger", []string{"create", "update", "delete"}, "create, update, delete, undelete, bulk_update, bulk_delete")
	flags.StringVar(&in.method, "method", "post", "HTTP method")
	flags.StringVar(&in.secret, "secret", "", "secret that signs the deliveries")
	flags.BoolVar(&in.generate, "generate-secret", false, "make a secret and print it once")
	flags.StringArrayVar(&in.headers, "header", nil, "NAME: VALUE that is sent along; repeatable")
	_ = create.MarkFlagRequired("to") // the flag exists
	create.MarkFlagsMutuallyExclusive("secret", "generate-secret")
	test := &cobra.Command{
		Use: "test NAME", Short: "Send a signed sample and show what came back", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return s.testWebhook(c, args[0]) },
	}
	return group("webhook", "List, create and test webhooks of a running host", list, create, test)
}

func (s *session) listWebhooks(c *cobra.Command) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	page, err := api.Find(c.Context(), webhookObject, client.Query{OrderBy: []client.OrderTerm{{Field: "name", Order: "asc"}}, Limit: 1000})
	if err != nil {
		return err
	}
	return s.show(c, page.Records, func(w io.Writer) error {
		t := newTable("NAME", "OBJECT", "TRIGGERS", "URL", "STATE")
		for _, r := range page.Records {
			t.add(text(r["name"]), text(r["object_name"]), strings.Join(list(r["triggers"]), ","), text(r["url"]), webhookState(r))
		}
		return t.print(w, widthOf(w, s.getenv))
	})
}

func webhookState(r client.Record) string {
	switch {
	case r["active"] != true && text(r["disabled_reason"]) != "":
		return "off: " + text(r["disabled_reason"])
	case r["active"] != true:
		return "off"
	case r["paused"] == true:
		return "paused"
	}
	return "on"
}

func (s *session) createWebhook(c *cobra.Command, in newWebhook) error {
	headers := map[string]string{}
	for _, h := range in.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return misuse("--header", "%q is not written as NAME: VALUE", name)
		}
		headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	api, err := s.client()
	if err != nil {
		return err
	}
	if in.generate {
		in.secret = rand.Text()
	}
	values := client.Record{"name": in.name, "object_name": in.object, "url": in.url, "method": strings.ToLower(in.method), "triggers": in.triggers}
	if in.secret != "" {
		values["signing_secret"] = in.secret
	}
	if len(headers) > 0 {
		data, err := json.Marshal(headers)
		if err != nil {
			return err
		}
		values["headers_secret"] = string(data)
	}
	record, err := api.Create(c.Context(), webhookObject, values)
	if err != nil {
		return err
	}
	if in.generate {
		record["signing_secret"] = in.secret
	}
	return s.show(c, record, func(w io.Writer) error {
		generated := ""
		if in.generate {
			generated = in.secret + "  (shown once)"
		}
		return pairs(w, "created", text(record["name"]), "id", text(record["id"]), "secret", generated)
	})
}

// webhookID finds a webhook by its name, else takes the argument for an ID.
func webhookID(c *cobra.Command, api *client.Client, name string) (string, error) {
	page, err := api.Find(c.Context(), webhookObject, client.Query{Where: client.Record{"name": name}, Limit: 1})
	if err != nil {
		return "", err
	}
	if len(page.Records) == 0 {
		return name, nil
	}
	return text(page.Records[0]["id"]), nil
}

func (s *session) testWebhook(c *cobra.Command, name string) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	id, err := webhookID(c, api, name)
	if err != nil {
		return err
	}
	var answer struct {
		Data client.Record `json:"data"`
	}
	if err := api.Do(c.Context(), http.MethodPost, "/api/v1/webhooks/"+url.PathEscape(id)+"/test", struct{}{}, &answer); err != nil {
		return err
	}
	return s.show(c, answer.Data, func(w io.Writer) error {
		attempt, _ := answer.Data["attempt"].(map[string]any) // nil when there was none
		duration := ""
		if ms := text(attempt["durationMs"]); ms != "" {
			duration = ms + " ms"
		}
		return pairs(w, "status", text(answer.Data["status"]), "result", attemptResult(attempt), "duration", duration,
			"address", text(attempt["remoteAddr"]), "answer", text(attempt["responseBody"]), "delivery", text(answer.Data["deliveryId"]))
	})
}

// printRecord prints all that a record holds, in the order of the names.
func printRecord(w io.Writer, r client.Record) error {
	for _, name := range sortedKeys(r) {
		if v := text(r[name]); v != "" {
			if _, err := fmt.Fprintf(w, "%-18s %s\n", name, printable(v)); err != nil {
				return err
			}
		}
	}
	return nil
}
