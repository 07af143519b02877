package rest

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/auth"
	"github.com/objecthost/objecthost/services/auth/sqlstore"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/services/realtime/sqllog"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// streamed is a host with a real log and a real socket.
type streamed struct {
	t      *testing.T
	engine *data.Engine
	auth   *auth.Service
	url    string
	kernel *core.Kernel
	stop   func()
}

const (
	streamWait = 60 * time.Second
	guarded    = `{"name": "guarded", "label": "Guarded", "fields": {
		"name": {"type": "text", "label": "Name"}, "body": {"type": "text", "label": "Body", "permission": "guarded.read_body"},
		"hidden": {"type": "text", "label": "Hidden", "internal": true}, "key": {"type": "secret", "label": "Key"}}}`
	closedObject = `{"name": "closed", "label": "Closed", "enable": {"apiMethods": []}, "fields": {"name": {"type": "text", "label": "Name"}}}`
)

// plainKeyring seals by name only; what it does is not looked at here.
type plainKeyring struct{}

func (plainKeyring) Seal(text, _ []byte) (string, error) { return "sealed:" + string(text), nil }
func (plainKeyring) Open(sealed string, _ []byte) ([]byte, error) {
	return []byte(strings.TrimPrefix(sealed, "sealed:")), nil
}

func setupStreams(t *testing.T, db *storage.DB, cfg Config) *streamed {
	t.Helper()
	if err := db.Migrate(t.Context(), sqllog.Migrations()); err != nil {
		t.Fatal(err)
	}
	store := sqlstore.New(db)
	access, err := auth.New(store, auth.Config{})
	if err != nil {
		t.Fatal(err)
	}
	log, err := realtime.New(db, sqllog.New(db, nil), realtime.Config{})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := data.New(t.Context(), db, data.Config{Events: log, Authorizer: access, Keyring: plainKeyring{}})
	if err != nil {
		t.Fatal(err)
	}
	var schemas []object.Schema
	for _, text := range []string{account, guarded, closedObject} {
		schema, err := object.Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		schemas = append(schemas, schema)
	}
	cfg.Addr = "127.0.0.1:0"
	server := NewPlugin(cfg)
	h := &streamed{t: t, engine: engine, auth: access, kernel: core.New(core.Config{})}
	if err := h.kernel.Use(server, data.NewPlugin(engine, schemas...), auth.NewPlugin(access, func(context.Context, auth.NewKey) {}), realtime.NewPlugin(log)); err != nil {
		t.Fatal(err)
	}
	if err := h.kernel.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.stop = func() {
		ctx, cancel := context.WithTimeout(context.Background(), streamWait)
		defer cancel()
		if err := h.kernel.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(h.stop)
	h.url = "http://" + server.Addr()
	return h
}

func (h *streamed) create(object string, record data.Record) string {
	h.t.Helper()
	made, err := h.engine.Create(identity.With(h.t.Context(), identity.System()), object, record)
	if err != nil {
		h.t.Fatal(err)
	}
	return made.ID
}

// message is one server-sent event.
type message struct{ id, event, data string }

// follower reads a stream.
type follower struct {
	t        *testing.T
	response *http.Response
	messages chan message
	last     string // the id to come back with
}

func (h *streamed) open(key, query, after string) *http.Response {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, h.url+"/api/v1/events/stream"+query, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("X-API-Key", key)
	}
	if after != "" {
		r.Header.Set("Last-Event-ID", after)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	return response
}

// follow opens a stream and returns when it is live, or has something to say.
func (h *streamed) follow(key, query, after string) *follower {
	h.t.Helper()
	response := h.open(key, query, after)
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		h.t.Fatalf("status %d, %s", response.StatusCode, response.Header.Get("Content-Type"))
	}
	f := &follower{t: h.t, response: response, messages: make(chan message, 1000)}
	h.t.Cleanup(f.close)
	go f.read()
	return f
}

func (f *follower) close() { _ = f.response.Body.Close() }

// read parses the stream; an id without data is a message without data.
func (f *follower) read() {
	defer close(f.messages)
	lines := bufio.NewScanner(f.response.Body)
	lines.Buffer(nil, 1<<20)
	var m message
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			m.id = value
		case "event":
			m.event = value
		case "data":
			m.data += value
		case "":
			if lines.Text() == "" && m != (message{}) {
				f.messages <- m
				m = message{}
			}
		}
	}
}

// next returns the next message that is no heartbeat.
func (f *follower) next() message {
	f.t.Helper()
	for {
		m, ok := f.any()
		if !ok {
			f.t.Fatal("the stream has ended")
		}
		if m.data != "" {
			return m
		}
	}
}

func (f *follower) any() (message, bool) {
	f.t.Helper()
	select {
	case m, ok := <-f.messages:
		if m.id != "" {
			f.last = m.id
		}
		return m, ok
	case <-time.After(streamWait):
		f.t.Fatal("nothing came")
		return message{}, false
	}
}

// live waits for a heartbeat: the stream is up to date.
func (f *follower) live() *follower {
	f.t.Helper()
	for {
		m, ok := f.any()
		if !ok {
			f.t.Fatal("the stream has ended")
		}
		if m.data == "" {
			return f
		}
	}
}

func (f *follower) nextEvent() map[string]any {
	f.t.Helper()
	m := f.next()
	if m.event != "" {
		f.t.Fatalf("%s %s", m.event, m.data)
	}
	var e map[string]any
	if err := json.Unmarshal([]byte(m.data), &e); err != nil {
		f.t.Fatalf("%v in %s", err, m.data)
	}
	return e
}

func eachStreamed(t *testing.T, cfg Config, test func(t *testing.T, h *streamed)) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) { test(t, setupStreams(t, db, cfg)) })
}

func TestStreamFollowsAndResumes(t *testing.T) {
	eachStreamed(t, Config{StreamHeartbeat: 50 * time.Millisecond}, func(t *testing.T, h *streamed) {
		admin := makeKey(t, h.auth, auth.ScopeAdmin)
		f := h.follow(admin, "?object=account", "").live()
		id := h.create("account", data.Record{"name": "<A&B> \u2028\n", "annual_revenue": json.Number("9007199254740993")})
		h.create("guarded", data.Record{"name": "not asked for"})
		m := f.next()
		if !strings.Contains(m.data, `"annual_revenue":9007199254740993`) || !strings.Contains(m.data, `<A&B>`) {
			t.Errorf("data %s", m.data)
		}
		var e struct {
			Type, Object, RecordID string
			After                  map[string]any
		}
		if err := json.Unmarshal([]byte(m.data), &e); err != nil {
			t.Fatal(err)
		}
		if e.Type != "data.record.created" || e.Object != "account" || e.RecordID != id || e.After["name"] != "<A&B> \u2028\n" {
			t.Errorf("event %+v", e)
		}
		if _, err := h.engine.Update(identity.With(t.Context(), identity.System()), "account", id, data.Record{"name": "B"}, data.Match{}); err != nil {
			t.Fatal(err)
		}
		f.next()
		last := f.last
		f.close()
		// Missed while nobody was there.
		var missed []string
		for range 5 {
			missed = append(missed, h.create("account", data.Record{"name": "missed"}))
		}
		again := h.follow(admin, "?object=account", last)
		for _, want := range missed {
			if e := again.nextEvent(); e["recordId"] != want || e["type"] != "data.record.created" {
				t.Errorf("missed %v, want %s", e, want)
			}
		}
		// A heartbeat's id is as good, and is in the query where there is no header.
		again.live()
		next := h.create("account", data.Record{"name": "next"})
		third := h.follow(admin, "?object=account,guarded&type=data.record.created&lastEventId="+again.last, "")
		if e := third.nextEvent(); e["recordId"] != next {
			t.Errorf("after a heartbeat %v, want %s", e, next)
		}
		if e := again.nextEvent(); e["recordId"] != next {
			t.Errorf("live %v, want %s", e, next)
		}
		if _, err := h.engine.Update(identity.With(t.Context(), identity.System()), "account", next, data.Record{"name": "not asked for"}, data.Match{}); err != nil {
			t.Fatal(err)
		}
		other := h.create("guarded", data.Record{"name": "asked for"})
		if e := third.nextEvent(); e["recordId"] != other {
			t.Errorf("of the types %v, want the creation of %s", e, other)
		}
	})
}

func TestStreamResetsAnUnusableID(t *testing.T) {
	eachStreamed(t, Config{}, func(t *testing.T, h *streamed) {
		admin := makeKey(t, h.auth, auth.ScopeAdmin)
		h.create("account", data.Record{"name": "before"})
		for id, want := range map[string]string{"made up": "unknown", "1.5": "expired", "99999999999999.'": "unknown"} {
			f := h.follow(admin, "", id)
			if m := f.next(); m.event != "reset" || m.data != `{"reason":"`+want+`"}` || m.id == "" {
				t.Errorf("%s: %+v", id, m)
			}
			after := h.create("account", data.Record{"name": "after"})
			if e := f.nextEvent(); e["recordId"] != after {
				t.Errorf("%s: %v, want %s", id, e, after)
			}
			f.close()
		}
	})
}

// Events hold what the caller may read of the record, and nothing else.
func TestStreamShowsWhatItsReaderMayRead(t *testing.T) {
	eachStreamed(t, Config{}, func(t *testing.T, h *streamed) {
		all := h.follow(makeKey(t, h.auth, auth.ScopeAdmin), "", "").live()
		less := h.follow(makeKey(t, h.auth, "object:guarded:read"), "", "").live()
		getOnly := h.follow(makeKey(t, h.auth, "object:account:get", "object:guarded:read"), "", "").live()
		h.create("account", data.Record{"name": "unreadable"})
		h.create("closed", data.Record{"name": "closed to the API"})
		id := h.create("guarded", data.Record{"name": "n", "body": "for some", "hidden": "for nobody", "key": "s3cret"})
		if e := all.nextEvent(); e["object"] != "account" {
			t.Errorf("the administrator got %v first", e)
		}
		whole := all.nextEvent()
		after := whole["after"].(map[string]any)
		if whole["recordId"] != id || after["body"] != "for some" || after["name"] != "n" {
			t.Errorf("the administrator's event %v", whole)
		}
		for _, f := range []*follower{less, getOnly} {
			e := f.nextEvent()
			after := e["after"].(map[string]any)
			if _, there := after["body"]; e["recordId"] != id || there || after["name"] != "n" {
				t.Errorf("the event of a reader without the permission: %v", e)
			}
		}
		for _, name := range []string{"hidden", "key"} {
			if _, there := after[name]; there {
				t.Errorf("%s is in the event: %v", name, after)
			}
		}
	})
}

func TestStreamRefusals(t *testing.T) {
	eachStreamed(t, Config{}, func(t *testing.T, h *streamed) {
		reader := makeKey(t, h.auth, "object:account:read")
		for _, c := range []struct {
			key, query string
			status     int
			code       string
		}{
			{"", "", http.StatusUnauthorized, "UNAUTHENTICATED"},
			{"osk_wrong", "", http.StatusUnauthorized, "UNAUTHENTICATED"},
			{reader, "?object=guarded", http.StatusForbidden, "PERMISSION_DENIED"},
			{reader, "?object=account&object=nope", http.StatusNotFound, "OBJECT_NOT_FOUND"},
			{reader, "?object=closed", http.StatusMethodNotAllowed, "OBJECT_API_METHOD_NOT_ALLOWED"},
			{reader, "?type=data%20record", http.StatusBadRequest, "INVALID_REQUEST"},
			{reader, "?objects=account", http.StatusBadRequest, "INVALID_REQUEST"},
			{reader, "?type=" + strings.Repeat("a,", 101), http.StatusBadRequest, "INVALID_REQUEST"},
		} {
			response := h.open(c.key, c.query, "")
			var body struct{ Error struct{ Code string } }
			err := json.NewDecoder(response.Body).Decode(&body)
			_ = response.Body.Close()
			if err != nil || response.StatusCode != c.status || body.Error.Code != c.code {
				t.Errorf("%q: %d %s, %v; want %d %s", c.query, response.StatusCode, body.Error.Code, err, c.status, c.code)
			}
		}
		head, err := http.NewRequestWithContext(t.Context(), http.MethodHead, h.url+"/api/v1/events/stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		head.Header.Set("X-API-Key", reader)
		response, err := http.DefaultClient.Do(head)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("HEAD: %v, %v", response, err)
		}
		_ = response.Body.Close()
	})
}

// Four streams per key; another key has its own, and a place is free once its
// stream has ended.
func TestStreamsPerKey(t *testing.T) {
	eachStreamed(t, Config{}, func(t *testing.T, h *streamed) {
		one, two := makeKey(t, h.auth, "data:read"), makeKey(t, h.auth, "data:read")
		var open []*follower
		for range 4 {
			open = append(open, h.follow(one, "", "").live())
		}
		refused := h.open(one, "", "")
		var body struct{ Error struct{ Code string } }
		if err := json.NewDecoder(refused.Body).Decode(&body); err != nil || refused.StatusCode != http.StatusTooManyRequests ||
			body.Error.Code != "TOO_MANY_STREAMS" || refused.Header.Get("Retry-After") == "" {
			t.Errorf("one too many: %d %+v, %v", refused.StatusCode, body, err)
		}
		_ = refused.Body.Close()
		h.follow(two, "", "").live()
		open[0].close()
		deadline := time.Now().Add(streamWait)
		for {
			response := h.open(one, "", "")
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the place of the stream that was closed is not free")
			}
		}
	})
}

// A stream lives longer than the time to send a request, and ends, saying so,
// with the server and with its credentials.
func TestStreamEnds(t *testing.T) {
	eachStreamed(t, Config{StreamHeartbeat: 50 * time.Millisecond, ReadTimeout: 200 * time.Millisecond, HeaderTimeout: 200 * time.Millisecond}, func(t *testing.T, h *streamed) {
		admin, err := h.auth.CreateKey(identity.With(t.Context(), identity.System()), auth.KeyRequest{Scopes: auth.Scopes{auth.ScopeAdmin}})
		if err != nil {
			t.Fatal(err)
		}
		keep := makeKey(t, h.auth, "data:read")
		revoked, kept := h.follow(admin.Secret, "", "").live(), h.follow(keep, "", "").live()
		for range 10 { // heartbeats, beyond the time to send a request
			kept.live()
			revoked.live()
		}
		if _, err := h.auth.RevokeKey(identity.With(t.Context(), identity.System()), admin.ID); err != nil {
			t.Fatal(err)
		}
		if m := revoked.next(); m.event != "closed" || m.data != `{"reason":"unauthenticated"}` {
			t.Errorf("after the key was revoked: %+v", m)
		}
		if m, ok := revoked.any(); ok {
			t.Errorf("after the end: %+v", m)
		}
		h.stop()
		if m := kept.next(); m.event != "closed" || m.data != `{"reason":"shutdown"}` {
			t.Errorf("at the stop: %+v", m)
		}
	})
}

// A client that doesn't read is cut off, told so once it reads, and resumes
// without a gap.
func TestStreamCutsSlowReaders(t *testing.T) {
	eachStreamed(t, Config{StreamQueue: 4, StreamPatience: time.Nanosecond}, func(t *testing.T, h *streamed) {
		admin := makeKey(t, h.auth, auth.ScopeAdmin)
		response := h.open(admin, "?object=account", "")
		defer func() { _ = response.Body.Close() }()
		// More than the buffers of both sockets hold.
		want := map[string]bool{}
		big := strings.Repeat("x", 100)
		for range 20 {
			var records []data.Record
			for range 100 {
				records = append(records, data.Record{"name": big})
			}
			made, err := h.engine.CreateMany(identity.With(t.Context(), identity.System()), "account", records)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range made.Records {
				want[r["id"].(string)] = true
			}
		}
		f := &follower{t: t, response: response, messages: make(chan message, 100_000)}
		go f.read()
		cuts := 0
		for len(want) > 0 {
			m := f.next()
			switch m.event {
			case "closed":
				if m.data != `{"reason":"too_slow"}` {
					t.Fatalf("closed: %s", m.data)
				}
				cuts++
				f.close()
				last := f.last
				f = h.follow(admin, "?object=account", last)
				f.last = last
				continue
			case "":
				var e struct{ RecordID string }
				if err := json.Unmarshal([]byte(m.data), &e); err != nil {
					t.Fatal(err)
				}
				if !want[e.RecordID] {
					t.Fatalf("%s came twice", e.RecordID)
				}
				delete(want, e.RecordID)
			default:
				t.Fatalf("%+v", m)
			}
		}
		if cuts == 0 {
			t.Error("a reader that slept was not cut off")
		}
	})
}

func TestDiscoveryTellsOfTheStream(t *testing.T) {
	eachStreamed(t, Config{}, func(t *testing.T, h *streamed) {
		response, err := http.Get(h.url + "/api/v1/discovery")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var d discovery
		if err := json.NewDecoder(response.Body).Decode(&d); err != nil {
			t.Fatal(err)
		}
		if got := d.Services["realtime"]; !got.Enabled || !got.HandlerReady || got.Status != "available" || got.Route != "/api/v1/events" {
			t.Errorf("realtime: %+v", got)
		}
		if d.Routes["realtime"] != "/api/v1/events" || d.Capabilities["websockets"].Enabled {
			t.Errorf("routes %v, capabilities %v", d.Routes, d.Capabilities)
		}
	})
}
