package pluginhost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/pluginhost/bundle"
	"github.com/objecthost/objecthost/pluginhost/sqlstore"
	"github.com/objecthost/objecthost/pluginsdk"
	"github.com/objecthost/objecthost/services/automation"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/realtime"
)

// maxBody bounds the body of an answer to a request that a plugin sends.
const maxBody = 8 << 20

// maxValue bounds a value of the key-value storage.
const maxValue = 1 << 20

// Caller is a named service that plugins call: under its name in the kernel lies
// a value that implements it.
type Caller interface {
	Call(ctx context.Context, method string, payload json.RawMessage) (json.RawMessage, error)
}

// services are what the host's API is made of.
type services struct {
	engine *data.Engine
	events *realtime.Service
	outbox *messaging.Service
	store  *sqlstore.Store
	host   core.Context
	// server and flows are nil in a host without them.
	server routeServer
	flows  *automation.Service
}

// api is the host's API for one plugin. Every method asks the grants first. Its
// calls are made in the name of the host itself, so that the grants are the only
// bound.
type api struct {
	services
	name   string
	policy *policy
}

var _ pluginsdk.Host = (*api)(nil)

func (a *api) Records() pluginsdk.Records     { return apiRecords{a} }
func (a *api) Events() pluginsdk.Events       { return apiEvents{a} }
func (a *api) Messaging() pluginsdk.Messaging { return apiMessaging{a} }
func (a *api) Services() pluginsdk.Services   { return apiServices{a} }
func (a *api) KV() pluginsdk.KV               { return apiKV{a} }

// policy is what a version of a plugin may do: what it requested and was
// granted. It is not changed.
type policy struct {
	requested, granted bundle.Capabilities
	denials            *denials
}

// allows tells whether both what was requested and what was granted admit it.
func (p *policy) allows(can func(bundle.Capabilities) bool) bool {
	return can(p.requested) && can(p.granted)
}

// check returns an error with CodeDenied, counts and logs it, unless it is
// allowed.
func (p *policy) check(capability string, can func(bundle.Capabilities) bool) error {
	if p.allows(can) {
		return nil
	}
	p.denials.add(capability)
	return &pluginsdk.Error{Code: pluginsdk.CodeDenied, Message: "the plugin was not granted " + capability}
}

// denials counts what a plugin was denied, over all its versions.
type denials struct {
	log *slog.Logger // set before the first use

	mu     sync.Mutex
	counts map[string]int64
}

func newDenials() *denials {
	return &denials{log: slog.New(slog.DiscardHandler), counts: map[string]int64{}}
}

func (d *denials) add(capability string) {
	d.mu.Lock()
	// Names come from the plugin: a bounded number of them is told apart.
	if _, known := d.counts[capability]; !known && len(d.counts) >= 100 {
		capability = "other"
	}
	d.counts[capability]++
	count := d.counts[capability]
	d.mu.Unlock()
	if count&(count-1) == 0 { // the 1st, 2nd, 4th, 8th …
		d.log.Warn("plugin was denied", "capability", capability, "times", count)
	}
}

func (d *denials) all() map[string]int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.counts)
}

// asHost is ctx in the name of the host.
func asHost(ctx context.Context) context.Context { return identity.With(ctx, identity.System()) }

type apiRecords struct{ *api }

func (a apiRecords) mayRead(object string) error {
	return a.policy.check("objects."+object+" read", func(c bundle.Capabilities) bool { return c.CanRead(object) })
}

func (a apiRecords) mayWrite(object string) error {
	return a.policy.check("objects."+object+" write", func(c bundle.Capabilities) bool { return c.CanWrite(object) })
}

func (a apiRecords) Find(ctx context.Context, object string, query json.RawMessage) (pluginsdk.Page, error) {
	if err := a.mayRead(object); err != nil {
		return pluginsdk.Page{}, err
	}
	schema, err := a.engine.Object(object)
	if err != nil {
		return pluginsdk.Page{}, fromData(err)
	}
	var q data.Query
	if len(query) > 0 {
		if q, err = data.ParseQueryBody(schema, query); err != nil {
			return pluginsdk.Page{}, fromData(err)
		}
	}
	for _, field := range q.Expand {
		if f, ok := schema.Field(field); ok {
			if err := a.mayRead(f.Reference); err != nil {
				return pluginsdk.Page{}, err
			}
		}
	}
	page, err := a.engine.Find(asHost(ctx), object, q)
	if err != nil {
		return pluginsdk.Page{}, fromData(err)
	}
	out := pluginsdk.Page{Records: page.Records, HasMore: page.HasMore, Total: -1}
	if page.Total != nil {
		out.Total = int64(*page.Total)
	}
	return out, nil
}

func (a apiRecords) Get(ctx context.Context, object, id string) (pluginsdk.Record, error) {
	if err := a.mayRead(object); err != nil {
		return nil, err
	}
	r, err := a.engine.Get(asHost(ctx), object, id)
	return r, fromData(err)
}

func (a apiRecords) Create(ctx context.Context, object string, values pluginsdk.Record) (pluginsdk.Record, error) {
	if err := a.mayWrite(object); err != nil {
		return nil, err
	}
	r, err := a.engine.Create(asHost(ctx), object, values)
	return a.masked(object, r.Record), fromData(err)
}

func (a apiRecords) Update(ctx context.Context, object, id string, values pluginsdk.Record, ifMatch string) (pluginsdk.Record, error) {
	if err := a.mayWrite(object); err != nil {
		return nil, err
	}
	r, err := a.engine.Update(asHost(ctx), object, id, values, data.Match{IfMatch: ifMatch})
	return a.masked(object, r.Record), fromData(err)
}

func (a apiRecords) Delete(ctx context.Context, object, id, ifMatch string) error {
	if err := a.mayWrite(object); err != nil {
		return err
	}
	return fromData(a.engine.Delete(asHost(ctx), object, id, data.Match{IfMatch: ifMatch}))
}

func (a apiRecords) Transaction(ctx context.Context, steps []pluginsdk.Step) ([]pluginsdk.Record, error) {
	list := make([]data.Step, len(steps))
	for i, s := range steps {
		if err := a.mayWrite(s.Object); err != nil {
			return nil, err
		}
		list[i] = data.Step{Object: s.Object, Action: s.Action, ID: s.ID, Data: s.Values}
	}
	results, err := a.engine.Transaction(asHost(ctx), list)
	if err != nil {
		return nil, fromData(err)
	}
	records := make([]pluginsdk.Record, len(results))
	for i := range results {
		records[i] = a.masked(steps[i].Object, results[i].Record)
	}
	return records, nil
}

// masked hides the references that a writer of secrets gets.
func (a *api) masked(object string, r data.Record) data.Record {
	schema, err := a.engine.Object(object)
	if err != nil {
		return r
	}
	for _, f := range schema.Fields {
		if f.IsSealed() && r[f.Name] != nil {
			r[f.Name] = data.Mask
		}
	}
	return r
}

// fromData keeps the code of an error of the data service.
func fromData(err error) error {
	var e *data.Error
	if !errors.As(err, &e) {
		return err
	}
	out := &pluginsdk.Error{Code: e.Code, Message: e.Message, Object: e.Object, Field: e.Field, Retryable: e.Code == data.CodeConcurrentUpdate}
	if len(e.Fields) > 0 {
		if text, err := json.Marshal(e.Fields); err == nil {
			out.Fields = text
		}
	}
	return out
}

type apiEvents struct{ *api }

func (a apiEvents) Publish(ctx context.Context, e pluginsdk.NewEvent) (string, error) {
	if strings.HasPrefix(e.Type, "data.") || strings.HasPrefix(e.Type, "delivery.") {
		return "", &pluginsdk.Error{Code: pluginsdk.CodeInvalid, Message: fmt.Sprintf("events of type %q are the host's own", e.Type)}
	}
	if err := a.policy.check("publish "+e.Type, func(c bundle.Capabilities) bool { return c.CanPublish(e.Type) }); err != nil {
		return "", err
	}
	entry := &event.Event{Type: e.Type, Object: e.Object, RecordID: e.RecordID, After: e.Payload}
	if err := a.events.Append(ctx, entry); err != nil {
		return "", &pluginsdk.Error{Code: pluginsdk.CodeInvalid, Message: err.Error()}
	}
	return entry.ID, nil
}

type apiMessaging struct{ *api }

// mayReach checks the host name of a URL. Where it leads to is checked by the
// guarded transport.
func (a apiMessaging) mayReach(raw string) (host string, err error) {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return "", &pluginsdk.Error{Code: pluginsdk.CodeInvalid, Message: "the URL is not absolute", Field: "url"}
	}
	host = strings.ToLower(u.Hostname())
	return host, a.policy.check("egress "+host, func(c bundle.Capabilities) bool { return c.CanReach(host) })
}

func (a apiMessaging) Enqueue(ctx context.Context, d pluginsdk.Delivery) (pluginsdk.Enqueued, error) {
	host, err := a.mayReach(d.URL)
	if err != nil {
		return pluginsdk.Enqueued{}, err
	}
	done, err := a.outbox.Enqueue(ctx, messaging.Request{
		Source: "plugin/" + a.name, RefID: host, DedupKey: d.DedupKey, Label: d.Label, URL: d.URL, Method: d.Method,
		Headers: d.Headers, Payload: d.Payload, Timeout: d.Timeout, EventID: d.EventID,
	})
	var bad *messaging.RequestError
	if errors.As(err, &bad) {
		return pluginsdk.Enqueued{}, &pluginsdk.Error{Code: pluginsdk.CodeInvalid, Message: err.Error()}
	}
	return pluginsdk.Enqueued{ID: done.ID, New: done.New}, err
}

func (a apiMessaging) Send(ctx context.Context, r pluginsdk.Request) (pluginsdk.Response, error) {
	if _, err := a.mayReach(r.URL); err != nil {
		return pluginsdk.Response{}, err
	}
	request, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return pluginsdk.Response{}, &pluginsdk.Error{Code: pluginsdk.CodeInvalid, Message: err.Error()}
	}
	for name, values := range r.Header {
		request.Header[http.CanonicalHeaderKey(name)] = values
	}
	answer, err := a.outbox.Sender().Client().Do(request)
	if err != nil {
		var refused *messaging.EgressError
		if errors.As(err, &refused) {
			return pluginsdk.Response{}, a.policy.check("egress: "+refused.Error(), func(bundle.Capabilities) bool { return false })
		}
		return pluginsdk.Response{}, &pluginsdk.Error{Code: pluginsdk.CodeUnavailable, Message: err.Error(), Retryable: true}
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxBody+1))
	if err != nil {
		return pluginsdk.Response{}, &pluginsdk.Error{Code: pluginsdk.CodeUnavailable, Message: err.Error(), Retryable: true}
	}
	out := pluginsdk.Response{Status: answer.StatusCode, Header: answer.Header, Body: body}
	if len(body) > maxBody {
		out.Body, out.Truncated = body[:maxBody], true
	}
	return out, nil
}

type apiServices struct{ *api }

func (a apiServices) Call(ctx context.Context, service, method string, payload json.RawMessage) (json.RawMessage, error) {
	if err := a.policy.check("services "+service, func(c bundle.Capabilities) bool { return c.CanCall(service) }); err != nil {
		return nil, err
	}
	value, err := a.host.LookupService(ctx, service)
	if core.IsServiceNotFound(err) {
		return nil, &pluginsdk.Error{Code: pluginsdk.CodeInvalid, Message: fmt.Sprintf("there is no service %q", service)}
	}
	if err != nil {
		return nil, err
	}
	caller, ok := value.(Caller)
	if !ok {
		return nil, &pluginsdk.Error{Code: pluginsdk.CodeInvalid, Message: fmt.Sprintf("the service %q is not for plugins", service)}
	}
	return caller.Call(ctx, method, payload)
}

type apiKV struct{ *api }

func (a apiKV) may(key string) error {
	if len(key) == 0 || len(key) > 512 || strings.ContainsRune(key, 0) || strings.ToValidUTF8(key, "") != key {
		return &pluginsdk.Error{Code: pluginsdk.CodeInvalid, Message: "a key has 1 to 512 bytes of UTF-8 without NUL", Field: "key"}
	}
	return a.policy.check("kv", func(c bundle.Capabilities) bool { return c.KV })
}

func (a apiKV) Get(ctx context.Context, key string) ([]byte, bool, error) {
	if err := a.may(key); err != nil {
		return nil, false, err
	}
	return a.store.Value(ctx, a.name, key)
}

func (a apiKV) Set(ctx context.Context, key string, value []byte) error {
	if err := a.may(key); err != nil {
		return err
	}
	if len(value) > maxValue {
		return &pluginsdk.Error{Code: pluginsdk.CodeInvalid, Message: fmt.Sprintf("a value has at most %d bytes", maxValue), Field: "value"}
	}
	return a.store.SetValue(ctx, a.name, key, value)
}

func (a apiKV) Delete(ctx context.Context, key string) error {
	if err := a.may(key); err != nil {
		return err
	}
	return a.store.DeleteValue(ctx, a.name, key)
}

func (a apiKV) Keys(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	if err := a.may("k"); err != nil {
		return nil, err
	}
	if limit < 1 || limit > 1000 {
		return nil, &pluginsdk.Error{Code: pluginsdk.CodeInvalid, Message: "limit must be 1 to 1000", Field: "limit"}
	}
	return a.store.Keys(ctx, a.name, prefix, after, limit)
}
