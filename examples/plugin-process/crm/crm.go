// Package crm is an example of a plugin: it brings accounts, checks them before
// they are written, tells another system about new ones, and serves a route, a
// service and a kind of flow node.
package crm

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/pluginsdk"
)

// Account is the object that the plugin brings.
const Account = "crm_account"

// Plugin is the plugin.
type Plugin struct {
	host   pluginsdk.Host
	config struct {
		// Notify is where new accounts are told of; empty for nowhere.
		Notify string `json:"notify"`
	}
}

// New returns the plugin.
func New() *Plugin { return &Plugin{} }

// Manifest tells what the plugin is and brings.
func (p *Plugin) Manifest() core.Manifest {
	return core.Manifest{
		ID: "com.example.crm", Version: "1.0.0", Namespace: "crm",
		ConfigSchema: json.RawMessage(`{"type":"object","properties":{"notify":{"type":"string"}},"additionalProperties":false}`),
		Contributes: core.Contributions{
			Objects: []object.Schema{{Name: Account, Label: "Account", Fields: object.Fields{
				{Name: "name", Type: object.Text, Label: "Name", Required: true},
				{Name: "email", Type: object.Text, Label: "E-mail"},
			}}},
			Routes: []core.Route{{Method: "GET", Pattern: "/accounts/count", Summary: "Count the accounts", Handler: http.HandlerFunc(p.count)}},
		},
	}
}

// Init keeps the host's API and reads the configuration.
func (p *Plugin) Init(ctx context.Context, host core.Context) (err error) {
	if p.host, err = pluginsdk.HostOf(ctx, host); err != nil {
		return err
	}
	if raw := host.Config(); raw != nil {
		return json.Unmarshal(raw, &p.config)
	}
	return nil
}

// Contributions are the handlers.
func (p *Plugin) Contributions() pluginsdk.Contributions {
	return pluginsdk.Contributions{
		Before:   []pluginsdk.BeforeHook{{Object: Account, OnError: pluginsdk.FailClosed, Run: p.check}},
		Events:   []pluginsdk.EventHandler{{Name: "notify", Object: Account, Types: []string{event.RecordCreated}, Handle: p.notify}},
		Services: []pluginsdk.Service{{Name: "crm.score", Call: p.score}},
		Nodes: []pluginsdk.FlowNode{{
			Type: "crm.segment", Name: "Segment an account", Category: "crm", Icon: "tags", Pure: true, Run: p.segment,
			Description:  "Sorts an account by its e-mail address into business, private or unknown, and chooses the edge of that label.",
			ConfigSchema: json.RawMessage(`{"type":"object","required":["email"],"properties":{"email":{"type":["string","null"],"description":"The account's address"}}}`),
		}},
	}
}

// check refuses addresses that are none and writes the others in lower case.
func (p *Plugin) check(_ context.Context, w pluginsdk.Write) (pluginsdk.Record, error) {
	email, given := w.Values["email"].(string)
	if !given || email == "" {
		return nil, nil
	}
	name, domain, ok := strings.Cut(email, "@")
	if !ok || name == "" || !strings.Contains(domain, ".") {
		return nil, pluginsdk.Refuse("email", "This is no e-mail address")
	}
	return pluginsdk.Record{"email": strings.ToLower(email)}, nil
}

// notify hands a delivery per account to the outbox. Events come at least once;
// the dedup key makes it one delivery.
func (p *Plugin) notify(ctx context.Context, events []*event.Event) error {
	if p.config.Notify == "" {
		return nil
	}
	for _, e := range events {
		_, err := p.host.Messaging().Enqueue(ctx, pluginsdk.Delivery{
			URL: p.config.Notify, Payload: e.After, DedupKey: e.ID, EventID: e.ID, Label: "account.created",
			Headers: map[string]string{"Content-Type": "application/json"},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// private are domains in which people have their own addresses.
var private = []string{"gmail.com", "outlook.com", "proton.me"}

// segment is the flow node crm.segment.
func (p *Plugin) segment(_ context.Context, s pluginsdk.NodeStep) (pluginsdk.NodeResult, error) {
	segment := "unknown"
	if email, _ := s.Config["email"].(string); email != "" {
		_, domain, ok := strings.Cut(strings.ToLower(email), "@")
		switch {
		case !ok:
			return pluginsdk.NodeResult{}, &pluginsdk.Error{Code: "NO_ADDRESS", Message: fmt.Sprintf("%q is no e-mail address", email), Field: "email"}
		case slices.Contains(private, domain):
			segment = "private"
		default:
			segment = "business"
		}
	}
	return pluginsdk.NodeResult{Output: pluginsdk.Record{"segment": segment}, Label: segment}, nil
}

func (p *Plugin) count(w http.ResponseWriter, r *http.Request) {
	page, err := p.host.Records().Find(r.Context(), Account, json.RawMessage(`{"limit":1}`))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"success":true,"data":%d}`, page.Total)
}

// score is the service crm.score: one point per letter of the name.
func (p *Plugin) score(_ context.Context, _ string, payload json.RawMessage) (json.RawMessage, error) {
	var account struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(payload, &account); err != nil {
		return nil, &pluginsdk.Error{Code: pluginsdk.CodeInvalid, Message: err.Error()}
	}
	return json.Marshal(map[string]int{"score": len([]rune(account.Name))})
}
