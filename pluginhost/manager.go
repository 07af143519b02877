package pluginhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/pluginhost/bundle"
	"github.com/objecthost/objecthost/pluginhost/sqlstore"
	"github.com/objecthost/objecthost/storage"
)

// PluginID is the id of the manager's own plugin.
const PluginID = "com.objectstack.service.pluginhost"

// PermissionManage is what the routes of the manager ask for.
const PermissionManage = "plugins.manage"

// ServiceKey is the service of the manager.
var ServiceKey = core.NewKey[*Manager]("pluginhost")

// ErrUnknownPlugin is returned for a name that no plugin has.
var ErrUnknownPlugin = errors.New("pluginhost: there is no such plugin")

// Manager runs the plugins of a folder. It is safe for concurrent use.
type Manager struct {
	cfg      Config
	db       *storage.DB
	adapters []*adapter
	byName   map[string]*adapter
}

// New reads the folder. Bundles that are broken or whose signature, lock or
// platform do not hold do not keep the others from running: they are failed.
// Only what makes the folder as a whole unreadable is an error.
func New(db *storage.DB, cfg Config) (*Manager, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	for _, path := range []*string{&cfg.Dir, &cfg.RunDir} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return nil, err
		}
		*path = absolute
	}
	if err := cfg.validate(); err != nil { // now with whole paths
		return nil, err
	}
	bundles, err := cfg.find()
	if err != nil {
		return nil, err
	}
	lock, err := bundle.LoadLock(cfg.Dir)
	if err != nil {
		return nil, err
	}
	m := &Manager{cfg: cfg, db: db, byName: map[string]*adapter{}}
	for _, b := range bundles {
		entry, locked := lock[b.Manifest.Name]
		if !locked && cfg.Dev {
			entry = bundle.Entry{Version: b.Manifest.Version, Digest: b.Digest, Enabled: true, Grants: b.Manifest.Capabilities}
		}
		a := newAdapter(m, b, entry)
		m.adapters = append(m.adapters, a)
		m.byName[b.Manifest.Name] = a
	}
	return m, nil
}

// Plugins are the manager itself and a plugin for each that was found, to be
// given to the kernel.
func (m *Manager) Plugins() []core.Plugin {
	all := []core.Plugin{managerPlugin{m}}
	for _, a := range m.adapters {
		all = append(all, a)
	}
	return all
}

// Status lists the plugins by name.
func (m *Manager) Status() []Status {
	all := make([]Status, len(m.adapters))
	for i, a := range m.adapters {
		all[i] = a.status()
	}
	return all
}

func (m *Manager) plugin(name string) (*adapter, error) {
	a, ok := m.byName[name]
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrUnknownPlugin, name)
	}
	return a, nil
}

// Enable switches a plugin on, remembers it in the lock file, and waits until it
// is ready or has failed, within ctx.
func (m *Manager) Enable(ctx context.Context, name string) error {
	a, err := m.plugin(name)
	if err != nil {
		return err
	}
	if err := m.remember(name, true); err != nil {
		return err
	}
	return a.enable(ctx)
}

// Disable switches a plugin off and remembers it. When it returns without an
// error the process has ended and nothing of the plugin is called any more.
func (m *Manager) Disable(ctx context.Context, name string) error {
	a, err := m.plugin(name)
	if err != nil {
		return err
	}
	if err := m.remember(name, false); err != nil {
		return err
	}
	return a.disable(ctx)
}

// Restart stops a plugin and starts it again from its folder, also one that is
// failed.
func (m *Manager) Restart(ctx context.Context, name string) error {
	a, err := m.plugin(name)
	if err != nil {
		return err
	}
	return a.restart(ctx)
}

// Logs returns the last n lines of a plugin's log.
func (m *Manager) Logs(name string, n int) ([]string, error) {
	a, err := m.plugin(name)
	if err != nil {
		return nil, err
	}
	lines, _, _, _ := a.logs.tail(n)
	return lines, nil
}

// remember writes into the lock file whether a plugin is on. One that is not in
// it runs by the development switch, which remembers nothing.
func (m *Manager) remember(name string, enabled bool) error {
	return bundle.UpdateLock(m.cfg.Dir, func(l bundle.Lock) error {
		if e, ok := l[name]; ok {
			e.Enabled = enabled
			l[name] = e
		}
		return nil
	})
}

// managerPlugin is the manager as a plugin.
type managerPlugin struct{ *Manager }

var (
	_ core.Plugin  = managerPlugin{}
	_ core.Starter = managerPlugin{}
)

// Manifest implements core.Plugin.
func (p managerPlugin) Manifest() core.Manifest {
	return core.Manifest{
		ID: PluginID, Version: "1.0.0", Provides: []string{ServiceKey.Name()},
		Contributes: core.Contributions{
			Permissions: []core.Permission{{Name: PermissionManage, Description: "See, start and stop plugins", Host: true}},
			Routes: []core.Route{
				{Method: "GET", Pattern: "/api/v1/system/plugins", Permission: PermissionManage, Summary: "List the plugins", Handler: http.HandlerFunc(p.list)},
				{Method: "GET", Pattern: "/api/v1/system/plugins/{name}", Permission: PermissionManage, Summary: "Show a plugin", Handler: http.HandlerFunc(p.show)},
				{Method: "GET", Pattern: "/api/v1/system/plugins/{name}/logs", Permission: PermissionManage, Summary: "Read the end of a plugin's log", Handler: http.HandlerFunc(p.log)},
				{Method: "POST", Pattern: "/api/v1/system/plugins/{name}/enable", Permission: PermissionManage, Summary: "Switch a plugin on", Handler: p.do(p.Enable)},
				{Method: "POST", Pattern: "/api/v1/system/plugins/{name}/disable", Permission: PermissionManage, Summary: "Switch a plugin off", Handler: p.do(p.Disable)},
				{Method: "POST", Pattern: "/api/v1/system/plugins/{name}/restart", Permission: PermissionManage, Summary: "Start a plugin anew", Handler: p.do(p.Restart)},
			},
		},
	}
}

// Init provides the manager and removes what dead hosts left behind.
func (p managerPlugin) Init(_ context.Context, host core.Context) error {
	if err := p.cfg.sweep(); err != nil {
		return err
	}
	return core.Provide(host, ServiceKey, p.Manager)
}

// Start migrates the tables.
func (p managerPlugin) Start(ctx context.Context) error {
	return p.db.Migrate(ctx, sqlstore.Migrations())
}

func (p managerPlugin) list(w http.ResponseWriter, _ *http.Request) { answer(w, p.Status()) }

func (p managerPlugin) show(w http.ResponseWriter, r *http.Request) {
	a, err := p.plugin(r.PathValue("name"))
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, a.status())
}

func (p managerPlugin) log(w http.ResponseWriter, r *http.Request) {
	n := 100
	if raw := r.URL.Query().Get("lines"); raw != "" {
		var err error
		if n, err = strconv.Atoi(raw); err != nil || n < 1 || n > logRing {
			answerError(w, http.StatusBadRequest, "INVALID_REQUEST", fmt.Sprintf("lines must be 1 to %d", logRing))
			return
		}
	}
	lines, err := p.Logs(r.PathValue("name"), n)
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, lines)
}

func (p managerPlugin) do(action func(context.Context, string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		if err := action(ctx, r.PathValue("name")); err != nil {
			refuse(w, err)
			return
		}
		p.show(w, r)
	}
}

func refuse(w http.ResponseWriter, err error) {
	if errors.Is(err, ErrUnknownPlugin) {
		answerError(w, http.StatusNotFound, "RESOURCE_NOT_FOUND", "there is no such plugin")
		return
	}
	answerError(w, http.StatusConflict, "PLUGIN_STATE", err.Error())
}

// answer writes a success of the wire protocol.
func answer(w http.ResponseWriter, value any) {
	writeJSON(w, http.StatusOK, map[string]any{"success": true, "data": value})
}

// answerError writes a refusal of the wire protocol.
func answerError(w http.ResponseWriter, status int, code, message string) {
	writeJSON(w, status, map[string]any{"success": false, "error": map[string]any{"code": code, "message": message}})
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // the caller has gone
}
