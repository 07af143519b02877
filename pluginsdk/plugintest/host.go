package plugintest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/objecthost/objecthost/pluginsdk"
)

// Host is a fake host. Its zero value is empty and ready. It is safe for
// concurrent use.
type Host struct {
	// Answer answers requests that are sent at once; nil answers 200 with an
	// empty body.
	Answer func(pluginsdk.Request) (pluginsdk.Response, error)
	// Serve answers calls to services of other plugins; nil knows none.
	Serve func(service, method string, payload json.RawMessage) (json.RawMessage, error)

	mu         sync.Mutex
	next       int
	records    map[string]map[string]pluginsdk.Record
	values     map[string][]byte
	deliveries []pluginsdk.Delivery
	published  []pluginsdk.NewEvent
}

var _ pluginsdk.Host = (*Host)(nil)

// Records implements pluginsdk.Host.
func (h *Host) Records() pluginsdk.Records { return records{h} }

// Events implements pluginsdk.Host.
func (h *Host) Events() pluginsdk.Events { return events{h} }

// Messaging implements pluginsdk.Host.
func (h *Host) Messaging() pluginsdk.Messaging { return messaging{h} }

// Services implements pluginsdk.Host.
func (h *Host) Services() pluginsdk.Services { return services{h} }

// KV implements pluginsdk.Host.
func (h *Host) KV() pluginsdk.KV { return kv{h} }

// Put stores a record, with an id of its own unless it has one, and returns the
// id.
func (h *Host) Put(object string, r pluginsdk.Record) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.put(object, r)
}

func (h *Host) put(object string, r pluginsdk.Record) string {
	r = maps.Clone(r)
	if r == nil {
		r = pluginsdk.Record{}
	}
	id, _ := r["id"].(string)
	if id == "" {
		h.next++
		id = fmt.Sprintf("record%010d", h.next)
		r["id"] = id
	}
	if h.records == nil {
		h.records = map[string]map[string]pluginsdk.Record{}
	}
	if h.records[object] == nil {
		h.records[object] = map[string]pluginsdk.Record{}
	}
	h.records[object][id] = r
	return id
}

// Deliveries are the requests that were enqueued, in their order.
func (h *Host) Deliveries() []pluginsdk.Delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.deliveries)
}

// Published are the events that were published, in their order.
func (h *Host) Published() []pluginsdk.NewEvent {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.published)
}

type records struct{ h *Host }

func notFound(object, id string) error {
	return &pluginsdk.Error{Code: "RECORD_NOT_FOUND", Message: fmt.Sprintf("there is no record %q", id), Object: object}
}

func (r records) Find(_ context.Context, object string, query json.RawMessage) (pluginsdk.Page, error) {
	var q struct {
		Where map[string]any `json:"where"`
		Limit *int           `json:"limit"`
	}
	if len(query) > 0 {
		if err := json.Unmarshal(query, &q); err != nil {
			return pluginsdk.Page{}, &pluginsdk.Error{Code: pluginsdk.CodeInvalid, Message: err.Error()}
		}
	}
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	page := pluginsdk.Page{}
	for _, id := range slices.Sorted(maps.Keys(r.h.records[object])) {
		record := r.h.records[object][id]
		matches := true
		for field, want := range q.Where {
			matches = matches && fmt.Sprint(record[field]) == fmt.Sprint(want)
		}
		if !matches {
			continue
		}
		page.Total++
		if q.Limit != nil && len(page.Records) == *q.Limit {
			page.HasMore = true
			continue
		}
		page.Records = append(page.Records, maps.Clone(record))
	}
	return page, nil
}

func (r records) Get(_ context.Context, object, id string) (pluginsdk.Record, error) {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	record, ok := r.h.records[object][id]
	if !ok {
		return nil, notFound(object, id)
	}
	return maps.Clone(record), nil
}

func (r records) Create(_ context.Context, object string, values pluginsdk.Record) (pluginsdk.Record, error) {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	id := r.h.put(object, values) // which may make the object's map
	return maps.Clone(r.h.records[object][id]), nil
}

func (r records) Update(_ context.Context, object, id string, values pluginsdk.Record, _ string) (pluginsdk.Record, error) {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	return r.update(object, id, values)
}

func (r records) update(object, id string, values pluginsdk.Record) (pluginsdk.Record, error) {
	record, ok := r.h.records[object][id]
	if !ok {
		return nil, notFound(object, id)
	}
	record = maps.Clone(record)
	maps.Copy(record, values)
	r.h.records[object][id] = record
	return maps.Clone(record), nil
}

func (r records) Delete(_ context.Context, object, id, _ string) error {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	if _, ok := r.h.records[object][id]; !ok {
		return notFound(object, id)
	}
	delete(r.h.records[object], id)
	return nil
}

func (r records) Transaction(_ context.Context, steps []pluginsdk.Step) ([]pluginsdk.Record, error) {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	saved := map[string]map[string]pluginsdk.Record{}
	for object, all := range r.h.records {
		saved[object] = maps.Clone(all)
	}
	var done []pluginsdk.Record
	for _, s := range steps {
		record, err := r.step(s, done)
		if err != nil {
			r.h.records = saved
			return nil, err
		}
		done = append(done, record)
	}
	return done, nil
}

func (r records) step(s pluginsdk.Step, done []pluginsdk.Record) (pluginsdk.Record, error) {
	values := maps.Clone(s.Values)
	for field, v := range values {
		ref, ok := v.(map[string]any)
		if !ok || ref["$ref"] == nil {
			continue
		}
		var n int
		if _, err := fmt.Sscan(fmt.Sprint(ref["$ref"]), &n); err != nil || n < 0 || n >= len(done) {
			return nil, &pluginsdk.Error{Code: pluginsdk.CodeInvalid, Message: "$ref must name an earlier step", Field: field}
		}
		values[field] = done[n]["id"]
	}
	switch s.Action {
	case pluginsdk.OpCreate:
		id := r.h.put(s.Object, values)
		return maps.Clone(r.h.records[s.Object][id]), nil
	case pluginsdk.OpUpdate:
		return r.update(s.Object, s.ID, values)
	case pluginsdk.OpDelete:
		if _, ok := r.h.records[s.Object][s.ID]; !ok {
			return nil, notFound(s.Object, s.ID)
		}
		delete(r.h.records[s.Object], s.ID)
		return pluginsdk.Record{"id": s.ID}, nil
	}
	return nil, &pluginsdk.Error{Code: pluginsdk.CodeInvalid, Message: fmt.Sprintf("%q is no action", s.Action)}
}

type events struct{ h *Host }

func (e events) Publish(_ context.Context, n pluginsdk.NewEvent) (string, error) {
	e.h.mu.Lock()
	defer e.h.mu.Unlock()
	e.h.published = append(e.h.published, n)
	return fmt.Sprintf("event%d", len(e.h.published)), nil
}

type messaging struct{ h *Host }

func (m messaging) Enqueue(_ context.Context, d pluginsdk.Delivery) (pluginsdk.Enqueued, error) {
	m.h.mu.Lock()
	defer m.h.mu.Unlock()
	for i, known := range m.h.deliveries {
		if d.DedupKey != "" && known.DedupKey == d.DedupKey {
			return pluginsdk.Enqueued{ID: fmt.Sprintf("delivery%d", i+1)}, nil
		}
	}
	m.h.deliveries = append(m.h.deliveries, d)
	return pluginsdk.Enqueued{ID: fmt.Sprintf("delivery%d", len(m.h.deliveries)), New: true}, nil
}

func (m messaging) Send(_ context.Context, r pluginsdk.Request) (pluginsdk.Response, error) {
	if m.h.Answer == nil {
		return pluginsdk.Response{Status: 200}, nil
	}
	return m.h.Answer(r)
}

type services struct{ h *Host }

func (s services) Call(_ context.Context, service, method string, payload json.RawMessage) (json.RawMessage, error) {
	if s.h.Serve == nil {
		return nil, &pluginsdk.Error{Code: pluginsdk.CodeInvalid, Message: fmt.Sprintf("there is no service %q", service)}
	}
	return s.h.Serve(service, method, payload)
}

type kv struct{ h *Host }

func (k kv) Get(_ context.Context, key string) ([]byte, bool, error) {
	k.h.mu.Lock()
	defer k.h.mu.Unlock()
	value, ok := k.h.values[key]
	return slices.Clone(value), ok, nil
}

func (k kv) Set(_ context.Context, key string, value []byte) error {
	k.h.mu.Lock()
	defer k.h.mu.Unlock()
	if k.h.values == nil {
		k.h.values = map[string][]byte{}
	}
	k.h.values[key] = slices.Clone(value)
	return nil
}

func (k kv) Delete(_ context.Context, key string) error {
	k.h.mu.Lock()
	defer k.h.mu.Unlock()
	delete(k.h.values, key)
	return nil
}

func (k kv) Keys(_ context.Context, prefix, after string, limit int) ([]string, error) {
	k.h.mu.Lock()
	defer k.h.mu.Unlock()
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(k.h.values)) {
		if len(keys) < limit && strings.HasPrefix(key, prefix) && key > after {
			keys = append(keys, key)
		}
	}
	return keys, nil
}
