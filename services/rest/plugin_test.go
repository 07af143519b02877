package rest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/auth"
	"github.com/objecthost/objecthost/services/auth/sqlstore"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// contributor is a plugin that only contributes routes.
type contributor struct {
	id     string
	routes []core.Route
	stop   func() // called when the plugin stops
}

func (c contributor) Manifest() core.Manifest {
	return core.Manifest{ID: c.id, Contributes: core.Contributions{Routes: c.routes}}
}

func (contributor) Init(context.Context, core.Context) error { return nil }

func (c contributor) Stop(context.Context) error {
	if c.stop != nil {
		c.stop()
	}
	return nil
}

// newKernel makes a kernel of the real services and the given plugins. The key
// is there once it has started.
func newKernel(t *testing.T, db *storage.DB, cfg Config, plugins ...core.Plugin) (k *core.Kernel, server *Plugin, key *string) {
	t.Helper()
	service, err := auth.New(sqlstore.New(db), auth.Config{})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := data.New(t.Context(), db, data.Config{Events: &events{}, Authorizer: service})
	if err != nil {
		t.Fatal(err)
	}
	server, key = NewPlugin(cfg), new(string)
	all := append([]core.Plugin{
		server, data.NewPlugin(engine), auth.NewPlugin(service, func(_ context.Context, k auth.NewKey) { *key = k.Secret }),
	}, plugins...)
	k = core.New(core.Config{})
	if err := k.Use(all...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Stop(context.Background()) })
	return k, server, key
}

func boot(t *testing.T, db *storage.DB, cfg Config, plugins ...core.Plugin) (k *core.Kernel, server *Plugin, key string) {
	t.Helper()
	k, server, made := newKernel(t, db, cfg, plugins...)
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return k, server, *made
}

// bootFails checks the error of a boot that must fail.
func bootFails(t *testing.T, cfg Config, check func(t *testing.T, err error), plugins ...core.Plugin) {
	t.Helper()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		k, _, _ := newKernel(t, db, cfg, plugins...)
		err := k.Start(t.Context())
		if err == nil {
			t.Fatal("the host has started")
		}
		check(t, err)
	})
}

func fetch(t *testing.T, method, url, key, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestPluginServes boots a host, uses its first key to make another one, and
// calls a plugin's route with that one until it is revoked.
func TestPluginServes(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		_, server, key := boot(t, db, Config{Addr: "127.0.0.1:0"}, contributor{id: "com.example.crm", routes: []core.Route{{
			Method: "POST", Pattern: "/api/v1/crm/{id}/close", Permission: "crm.close",
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = writeJSON(w, 200, envelope{Success: true, Data: map[string]any{
					"id": r.PathValue("id"), "key": identity.From(r.Context()).KeyID != "",
				}})
			}),
		}}})
		base := "http://" + server.Addr()
		status, body := fetch(t, "POST", base+"/api/v1/keys", key, `{"name":"closer","scopes":["crm.close"]}`)
		if status != 201 {
			t.Fatalf("POST /keys = %d %s", status, body)
		}
		made := parse(t, body).(map[string]any)["data"].(map[string]any)
		closer, id := made["key"].(string), made["id"].(string)
		for _, test := range []struct {
			method, path, key string
			status            int
			body              string
		}{
			{"POST", "/api/v1/crm/7/close", closer, 200, `{"success":true,"data":{"id":"7","key":true}}`},
			{"POST", "/api/v1/crm/7/close", "", 401, `{"success":false,"error":{"code":"UNAUTHENTICATED","message":"Authentication is required to access this endpoint."}}`},
			{"GET", "/api/v1/keys", closer, 403, `{"success":false,"error":{"code":"PERMISSION_DENIED","message":"You need the permission 'keys.manage'."}}`},
			{"GET", "/api/v1/data/nothing", key, 404, `{"error":"Object 'nothing' is not registered","code":"OBJECT_NOT_FOUND","object":"nothing"}`},
			{"GET", "/api/v1/ready", "", 200, `{"success":true,"data":{"status":"ready"}}`},
		} {
			if status, body := fetch(t, test.method, base+test.path, test.key, ""); status != test.status || body != test.body {
				t.Errorf("%s %s = %d %s, want %d %s", test.method, test.path, status, body, test.status, test.body)
			}
		}
		if status, body := fetch(t, "DELETE", base+"/api/v1/keys/"+id, key, ""); status != 200 {
			t.Fatalf("DELETE = %d %s", status, body)
		}
		if status, _ := fetch(t, "POST", base+"/api/v1/crm/7/close", closer, ""); status != 401 {
			t.Errorf("revoked key: %d, want 401", status)
		}
		_, body = fetch(t, "GET", base+"/api/v1/discovery", "", "")
		services := parse(t, body).(map[string]any)["services"].(map[string]any)
		for name, enabled := range map[string]bool{"data": true, "metadata": true, "auth": true, "automation": false} {
			if got := services[name].(map[string]any)["enabled"]; got != enabled {
				t.Errorf("service %s enabled = %v, want %v", name, got, enabled)
			}
		}
	})
}

func TestPluginConflictFailsBoot(t *testing.T) {
	t.Parallel()
	conflictOf := func(plugin, other string) func(*testing.T, error) {
		return func(t *testing.T, err error) {
			var conflict *RouteConflictError
			if !errors.As(err, &conflict) || conflict.Plugin != plugin || conflict.Other != other {
				t.Errorf("Start = %v, want *RouteConflictError of %s and %s", err, plugin, other)
			}
		}
	}
	route := func(method, pattern string) []core.Route {
		return []core.Route{{Method: method, Pattern: pattern, Handler: http.NotFoundHandler()}}
	}
	free := Config{Addr: "127.0.0.1:0"}
	t.Run("of two plugins", func(t *testing.T) {
		bootFails(t, free, conflictOf("com.example.b", "com.example.a"),
			contributor{id: "com.example.a", routes: route("GET", "/api/v1/x/{a}")},
			contributor{id: "com.example.b", routes: route("GET", "/api/v1/x/{b}")})
	})
	t.Run("with the server", func(t *testing.T) {
		bootFails(t, free, conflictOf("com.example.a", PluginID),
			contributor{id: "com.example.a", routes: route("POST", "/api/v1/data/{name}")})
	})
}

func TestPluginUsedPortFailsBoot(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	addr := taken.Addr().String()
	bootFails(t, Config{Addr: addr}, func(t *testing.T, err error) {
		var refused *ListenError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), "cannot listen on "+addr+": bind: address already in use") {
			t.Errorf("Start = %v", err)
		}
	})
}

func TestPluginBadConfigFailsBoot(t *testing.T) {
	t.Parallel()
	bootFails(t, Config{Environment: "prod"}, func(t *testing.T, err error) {
		if !strings.Contains(err.Error(), `Environment is "prod", must be production, sandbox or development`) {
			t.Errorf("Start = %v", err)
		}
	})
}

// TestPluginDrainsBeforeOthersStop stops the host in the middle of a request of
// a plugin that started after the server.
func TestPluginDrainsBeforeOthersStop(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		entered, release, stopped := make(chan struct{}), make(chan struct{}), make(chan struct{})
		k, server, _ := boot(t, db, Config{Addr: "127.0.0.1:0"}, contributor{
			id: "com.example.slow", stop: func() { close(stopped) },
			routes: []core.Route{{
				Method: "GET", Pattern: "/slow", Anonymous: true,
				Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					close(entered)
					<-release
					select {
					case <-stopped:
						_, _ = io.WriteString(w, "the plugin has stopped under its request")
					default:
						_, _ = io.WriteString(w, "fine")
					}
				}),
			}},
		})
		addr := server.Addr()
		answer := make(chan string, 1)
		go func() {
			resp, err := http.Get("http://" + addr + "/slow")
			if err != nil {
				answer <- err.Error()
				return
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			answer <- string(b)
		}()
		<-entered
		ended := make(chan error, 1)
		go func() { ended <- k.Stop(context.Background()) }()
		for { // until the listener is closed: then the stop is under way
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				break
			}
			_ = conn.Close()
		}
		close(release)
		if got := <-answer; got != "fine" {
			t.Errorf("answer %q", got)
		}
		if err := <-ended; err != nil {
			t.Errorf("Stop = %v", err)
		}
		if got := server.Addr(); got != "" {
			t.Errorf("Addr = %q after the stop", got)
		}
	})
}
