// Package hosttest runs a real host for the tests of plugins: data service,
// event log, outbox, flows, sign-in, HTTP server and plugin host, on one
// database.
//
//	dir := t.TempDir()
//	hosttest.Build(t, dir, hosttest.Plugin{Name: "crm", Package: "../cmd/crm", Capabilities: …})
//	h := hosttest.Start(t, hosttest.Config{Dir: dir, Objects: []object.Schema{…}})
//	h.Engine.Create(h.Context(), "crm_account", data.Record{"name": "Ada"})
package hosttest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/pluginhost"
	"github.com/objecthost/objecthost/pluginhost/bundle"
	"github.com/objecthost/objecthost/pluginsdk"
	"github.com/objecthost/objecthost/services/auth"
	authstore "github.com/objecthost/objecthost/services/auth/sqlstore"
	"github.com/objecthost/objecthost/services/automation"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	messagingstore "github.com/objecthost/objecthost/services/messaging/sqlstore"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/services/realtime/sqllog"
	"github.com/objecthost/objecthost/services/rest"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/seal"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// Config is what a host under test is made of. The zero value is a host without
// plugins on a SQLite file.
type Config struct {
	// DB is the database, a new SQLite file when nil.
	DB *storage.DB
	// Dir is the folder of the plugins, an empty one when "".
	Dir string
	// Objects are defined besides those of the plugins.
	Objects []object.Schema
	// InProcess, when set, adds plugins by Manager.InProcess.
	InProcess func(m *pluginhost.Manager) []core.Plugin
	// PluginHost is the configuration of the plugin host. Dir and RunDir are
	// set here, and Dev unless Strict.
	PluginHost pluginhost.Config
	// Strict wants signatures and the lock file.
	Strict bool
	// PluginConfig are the configurations by plugin id, which are not checked
	// against schemas.
	PluginConfig map[string]json.RawMessage
}

// Host is a host that runs.
type Host struct {
	DB      *storage.DB
	Engine  *data.Engine
	Events  *realtime.Service
	Outbox  *messaging.Service
	Manager *pluginhost.Manager
	// URL is where the HTTP server listens, Key an API key that may all.
	URL, Key string
	// RunDir is the plugin host's folder of running processes.
	RunDir string

	kernel *core.Kernel
	log    *logBuffer
	ctx    context.Context
	stop   sync.Once
}

// Start starts a host and stops it when the test ends. Requests of the outbox
// may go to this machine.
func Start(t testing.TB, cfg Config) *Host {
	t.Helper()
	h := &Host{DB: cfg.DB, log: &logBuffer{}, ctx: identity.With(t.Context(), identity.System())}
	if h.DB == nil {
		h.DB = storagetest.Open(t, storagetest.SQLite(t), storage.Config{})
	}
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	cfg.PluginHost.Dir, cfg.PluginHost.Dev = cfg.Dir, !cfg.Strict
	if cfg.PluginHost.RunDir == "" {
		cfg.PluginHost.RunDir = runDir(t)
	}
	h.RunDir = cfg.PluginHost.RunDir
	logger := slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the host's log:\n%s", h.Log())
		}
	})
	kernel, server, err := h.compose(cfg, logger)
	if err != nil {
		t.Fatal(err)
	}
	h.kernel = kernel
	if err := kernel.Start(t.Context()); err != nil {
		t.Fatalf("start the host: %v", err)
	}
	t.Cleanup(func() { h.Stop(t) })
	h.URL = "http://" + server.Addr()
	return h
}

// runDir is a folder with a short path, as sockets need it.
func runDir(t testing.TB) string {
	parent := os.TempDir()
	if len(parent) > 30 { // macOS has a long one
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "oh") //nolint:usetesting // the paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Services are the services that the plugin host and its plugins work with, on
// a database, for tests that bring a kernel of their own.
func Services(t testing.TB, db *storage.DB, objects ...object.Schema) []core.Plugin {
	t.Helper()
	h := &Host{DB: db, ctx: identity.With(t.Context(), identity.System())}
	services, _, err := h.services(slog.New(slog.DiscardHandler), objects)
	if err != nil {
		t.Fatal(err)
	}
	return services
}

// compose makes the services and the kernel.
func (h *Host) compose(cfg Config, logger *slog.Logger) (*core.Kernel, *rest.Plugin, error) {
	plugins, server, err := h.services(logger, cfg.Objects)
	if err != nil {
		return nil, nil, err
	}
	if h.Manager, err = pluginhost.New(h.DB, cfg.PluginHost); err != nil {
		return nil, nil, err
	}
	plugins = append(plugins, h.Manager.Plugins()...)
	if cfg.InProcess != nil {
		plugins = append(plugins, cfg.InProcess(h.Manager)...)
	}
	kernel := core.New(core.Config{Logger: logger, PluginConfig: cfg.PluginConfig, Validator: anyConfig{}})
	return kernel, server, kernel.Use(plugins...)
}

// services makes everything but the plugin host.
func (h *Host) services(logger *slog.Logger, objects []object.Schema) ([]core.Plugin, *rest.Plugin, error) {
	keys, err := seal.Generate()
	if err != nil {
		return nil, nil, err
	}
	if err := h.DB.Migrate(h.ctx, sqllog.Migrations(), messagingstore.Migrations()); err != nil {
		return nil, nil, err
	}
	if h.Events, err = realtime.New(h.DB, sqllog.New(h.DB, logger), realtime.Config{Logger: logger}); err != nil {
		return nil, nil, err
	}
	allow, err := messaging.ParseEgressAllow([]string{"127.0.0.1"})
	if err != nil {
		return nil, nil, err
	}
	if h.Outbox, err = messaging.New(messaging.Config{
		Store: messagingstore.New(h.DB), Tx: h.DB, Events: h.Events, Sealer: keys, Logger: logger, Exclusive: h.DB.Dialect() == storage.SQLite,
		Sender: messaging.SenderConfig{Egress: messaging.EgressConfig{Allow: allow}, Logger: logger},
	}); err != nil {
		return nil, nil, err
	}
	access, err := auth.New(authstore.New(h.DB), auth.Config{Logger: logger})
	if err != nil {
		return nil, nil, err
	}
	if h.Engine, err = data.New(h.ctx, h.DB, data.Config{Events: h.Events, Authorizer: access, Keyring: keys, Log: logger}); err != nil {
		return nil, nil, err
	}
	server := rest.NewPlugin(rest.Config{Addr: "127.0.0.1:0", Logger: logger})
	return []core.Plugin{
		realtime.NewPlugin(h.Events), messaging.NewPlugin(h.Outbox, access), data.NewPlugin(h.Engine, objects...), server,
		auth.NewPlugin(access, func(_ context.Context, key auth.NewKey) { h.Key = key.Secret }),
		automation.NewPlugin(h.DB, automation.Config{Sealer: keys, Logger: logger, Exclusive: h.DB.Dialect() == storage.SQLite}),
	}, server, nil
}

type anyConfig struct{}

func (anyConfig) ValidateConfig(string, json.RawMessage, json.RawMessage) error { return nil }

// Context is a context in the name of the host itself.
func (h *Host) Context() context.Context { return h.ctx }

// Log is what the host has logged so far.
func (h *Host) Log() string { return h.log.String() }

// Stop stops the host before the test ends. The test fails when that fails.
func (h *Host) Stop(t testing.TB) {
	h.stop.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := h.kernel.Stop(ctx); err != nil {
			t.Errorf("stop the host: %v", err)
		}
	})
}

// Do sends a request to the host with the key of the host's first
// administrator, and returns the status and the body.
func (h *Host) Do(t testing.TB, method, path string, body any) (int, string) {
	t.Helper()
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		reader = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, h.URL+path, reader)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+h.Key)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// Status is the status of a plugin.
func (h *Host) Status(t testing.TB, name string) pluginhost.Status {
	t.Helper()
	for _, s := range h.Manager.Status() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("there is no plugin %q", name)
	return pluginhost.Status{}
}

// Plugin tells how a bundle is made.
type Plugin struct {
	// Name is the bundle's name.
	Name string
	// Package is the folder of the plugin's main package. Binary, when set, is
	// taken instead: a program that was built already.
	Package, Binary string
	// Args are given to the program when it is run.
	Args []string
	// Files are further files of the bundle, by name. The program runs in a
	// folder with them.
	Files map[string][]byte
	// Transport is the bundle's, mtls when empty.
	Transport    string
	Capabilities bundle.Capabilities
}

// Build builds a plugin and makes a bundle of it in a sub-folder of dir. What it
// contributes is asked of the program.
func Build(t testing.TB, dir string, p Plugin) *bundle.Bundle {
	t.Helper()
	home := filepath.Join(dir, p.Name)
	if err := os.MkdirAll(home, 0o755); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(home, "plugin")
	if p.Binary != "" {
		text, err := os.ReadFile(p.Binary)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(binary, text, 0o755); err != nil {
			t.Fatal(err)
		}
	} else {
		Compile(t, p.Package, binary)
	}
	files := []string{"plugin"}
	for name, text := range p.Files {
		files = append(files, name)
		if err := os.WriteFile(filepath.Join(home, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	describe := exec.CommandContext(t.Context(), firstOf(p.Binary, binary), "describe")
	describe.Dir = home
	out, err := describe.Output()
	if err != nil {
		t.Fatalf("describe: %v", err)
	}
	var says pluginsdk.Description
	if err := json.Unmarshal(out, &says); err != nil {
		t.Fatalf("describe: %v", err)
	}
	b, err := bundle.Write(home, bundle.Manifest{
		Name: p.Name, ID: says.ID, Version: says.Version, Protocol: pluginsdk.ProtocolVersion, Transport: p.Transport,
		Executables:  map[string]bundle.Executable{"any": {Path: "plugin", Args: p.Args}},
		Capabilities: p.Capabilities, Contributes: says.Contributes,
	}, files...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Compile builds a main package.
func Compile(t testing.TB, pkg, binary string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".")
	command.Dir = pkg
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// logBuffer is a log that tests read while the host writes it.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
