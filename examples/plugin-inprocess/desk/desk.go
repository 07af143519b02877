// Package desk is a help desk as a plugin: tickets, a rule for closing them, a
// history of their states, and a summary.
package desk

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/realtime"
)

// The names that the plugin brings into a host.
const (
	PluginID          = "com.example.desk"
	TicketObject      = "desk_ticket"
	HistoryObject     = "desk_history"
	PermissionSummary = "desk.summary"
)

// records and log are what the plugin needs of the data service and of the
// event log. It finds them by name, whoever provides them.
type records interface {
	Create(ctx context.Context, object string, values data.Record) (data.Result, error)
	Find(ctx context.Context, object string, q data.Query) (*data.Page, error)
	BeforeWrite(object string, handler func(context.Context, *data.Write) error)
}

type log interface {
	Consume(cfg realtime.ConsumerConfig, handler realtime.Handler) error
}

var (
	recordsKey = core.NewKey[records]("data")
	logKey     = core.NewKey[log]("realtime")
)

// Plugin implements core.Plugin.
type Plugin struct{ records records }

var _ core.Plugin = (*Plugin)(nil)

// New returns the plugin.
func New() *Plugin { return &Plugin{} }

// Manifest tells what the plugin is, needs and brings.
func (p *Plugin) Manifest() core.Manifest {
	return core.Manifest{
		ID: PluginID, Version: "1.0.0", Namespace: "desk",
		DependsOn: []string{data.PluginID, realtime.PluginID},
		Requires:  []string{recordsKey.Name(), logKey.Name()},
		Contributes: core.Contributions{
			Objects:     []object.Schema{ticket(), history()},
			Navigation:  []core.NavigationItem{{ID: "desk-tickets", Label: "Tickets", ObjectName: TicketObject, Icon: "ticket"}},
			Permissions: []core.Permission{{Name: PermissionSummary, Description: "See how many tickets there are"}},
			Routes: []core.Route{{
				Method: http.MethodGet, Pattern: "/api/v1/desk/summary", Permission: PermissionSummary,
				Summary: "Count the tickets by state", Handler: http.HandlerFunc(p.summary),
			}},
		},
	}
}

func ticket() object.Schema {
	return object.Schema{
		Name: TicketObject, Label: "Ticket", PluralLabel: "Tickets", NameField: "title",
		Fields: object.Fields{
			{Name: "title", Type: object.Text, Label: "Title", Required: true},
			{Name: "state", Type: object.Select, Label: "State", DefaultValue: json.RawMessage(`"open"`), Options: []object.Option{
				{Label: "Open", Value: "open"}, {Label: "Closed", Value: "closed"},
			}},
			{Name: "resolution", Type: object.Textarea, Label: "Resolution"},
		},
	}
}

// history keeps the id of a ticket as a text and not as a lookup, because it
// outlives the ticket.
func history() object.Schema {
	return object.Schema{
		Name: HistoryObject, Label: "Ticket history", NameField: "state",
		Fields: object.Fields{
			{Name: "ticket_id", Type: object.Text, Label: "Ticket", Required: true, Index: true},
			{Name: "state", Type: object.Text, Label: "State", Required: true},
			{Name: "changed_at", Type: object.Datetime, Label: "Changed at", Required: true},
		},
	}
}

// Init finds the services and hooks into them. It starts nothing.
func (p *Plugin) Init(ctx context.Context, host core.Context) (err error) {
	if p.records, err = core.Lookup(ctx, host, recordsKey); err != nil {
		return err
	}
	events, err := core.Lookup(ctx, host, logKey)
	if err != nil {
		return err
	}
	p.records.BeforeWrite(TicketObject, closing)
	return events.Consume(realtime.ConsumerConfig{Name: "desk.history"}, p.remember)
}

// closing is the hook: a ticket is closed with a resolution, or not at all. It
// runs before the record is validated, on whatever way it is written.
func closing(_ context.Context, w *data.Write) error {
	if w.Operation == data.OpDelete {
		return nil
	}
	value := func(field string) any {
		if v, given := w.Values[field]; given {
			return v
		}
		return w.Before[field]
	}
	if value("state") != "closed" {
		return nil
	}
	if text, _ := value("resolution").(string); text == "" {
		return data.Invalid(TicketObject, data.FieldError{
			Field: "resolution", Code: "required", Label: "Resolution", Message: "A ticket is closed with a resolution",
		})
	}
	return nil
}

// remember is the event handler: it writes a line of history for every state
// that a ticket takes. ctx carries the transaction in which the position in
// the event log moves, so each line is written exactly once, also when the
// process is killed in between.
func (p *Plugin) remember(ctx context.Context, events []*event.Event) error {
	ctx = identity.With(ctx, identity.System())
	for _, e := range events {
		source := e.After
		switch {
		case e.Object != TicketObject:
			continue
		case e.Type == event.RecordUpdated:
			source = e.Changes
		case e.Type != event.RecordCreated:
			continue
		}
		var record struct {
			State string `json:"state"`
		}
		if err := json.Unmarshal(source, &record); err != nil {
			return err
		}
		if record.State == "" {
			continue // the update left the state as it was
		}
		if _, err := p.records.Create(ctx, HistoryObject, data.Record{
			"ticket_id": e.RecordID, "state": record.State, "changed_at": event.FormatTime(e.Timestamp),
		}); err != nil {
			return err
		}
	}
	return nil
}

// summary is the route. The request's context carries the caller, in whose
// name the records are read.
func (p *Plugin) summary(w http.ResponseWriter, r *http.Request) {
	page, err := p.records.Find(r.Context(), TicketObject, data.Query{
		GroupBy: []string{"state"}, Aggregations: []data.Aggregation{{Function: "count", Alias: "tickets"}},
	})
	if err != nil {
		refuse(w, err)
		return
	}
	counts := map[string]any{"open": 0, "closed": 0}
	for _, group := range page.Records {
		if state, ok := group["state"].(string); ok {
			counts[state] = group["tickets"]
		}
	}
	answer(w, http.StatusOK, map[string]any{"success": true, "data": counts})
}

// refuse answers an error in the envelope of plugins' routes.
func refuse(w http.ResponseWriter, err error) {
	status, code, message := http.StatusInternalServerError, "INTERNAL_ERROR", "Internal error"
	var known *data.Error
	if errors.As(err, &known) {
		status, code, message = known.HTTPStatus(), known.Code, known.Message
	}
	answer(w, status, map[string]any{"success": false, "error": map[string]any{"code": code, "message": message}})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client is gone when this fails
}
