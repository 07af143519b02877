package rest

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/data"
)

// Authenticator tells who sent a request and what they may do; *auth.Service is
// one. Authenticate returns the anonymous principal for a request without
// credentials, and an error that wraps identity.ErrUnauthenticated for one with
// wrong credentials.
type Authenticator interface {
	identity.Authorizer
	Authenticate(r *http.Request) (identity.Principal, error)
}

// Parts is what a server serves.
type Parts struct {
	// Auth tells who calls. Required.
	Auth Authenticator
	// Data is the engine behind the data and metadata routes. Required.
	Data *data.Engine
	// Routes are the plugins' own, in the order in which conflicts are told: the
	// later one is to blame.
	Routes []OwnedRoute
	// Events streams events to clients; nil for a host without a log.
	Events Streamer
	// Services lists the names of the kernel's services for discovery.
	Services func() []string
	// Manifests lists the plugins' manifests: who contributes which object, and
	// what stands in the navigation.
	Manifests func() []core.Manifest
	// PackageStatus tells of a plugin in a process of its own whether it is
	// installed, disabled or in error; it does not know the others.
	PackageStatus func(id string) (status string, known bool)
}

// Server is the HTTP server. It is safe for concurrent use.
type Server struct {
	cfg       Config
	auth      Authenticator
	data      *data.Engine
	events    Streamer // nil for none
	streams   *streams
	routes    []OwnedRoute // those of the boot, the server's own first
	console   *console     // nil for none
	names     func() []string
	manifests func() []core.Manifest
	state     func(id string) (status string, known bool)
	meta      *metaTags
	checks    *readiness
	handler   http.Handler

	router  atomic.Pointer[chi.Mux] // of routes and late
	routing sync.Mutex              // one change of late at a time
	late    map[string][]OwnedRoute // by plugin, see SetRoutes

	ending ending

	mu       sync.Mutex
	http     *http.Server // nil unless listening
	listener net.Listener
	served   chan struct{} // closed when the serve loop has ended
	closed   bool          // Shutdown was called
}

// ErrStopped is returned by Listen after Shutdown: a server runs once.
var ErrStopped = errors.New("rest: the server has been stopped")

// New builds the server and its routes. Routes that conflict or that cannot be
// served are an error: *[RouteConflictError] or *[RouteError].
func New(cfg Config, parts Parts) (*Server, error) {
	return newServer(cfg, parts, &readiness{})
}

func newServer(cfg Config, parts Parts, checks *readiness) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	switch {
	case parts.Auth == nil:
		return nil, errors.New("rest: Parts.Auth is required")
	case parts.Data == nil:
		return nil, errors.New("rest: Parts.Data is required")
	case parts.Services == nil:
		parts.Services = func() []string { return nil }
	}
	if parts.PackageStatus == nil {
		parts.PackageStatus = func(string) (string, bool) { return "", false }
	}
	if parts.Manifests == nil {
		parts.Manifests = func() []core.Manifest { return nil }
	}
	s := &Server{
		cfg: cfg, auth: parts.Auth, data: parts.Data, events: parts.Events, streams: newStreams(), names: parts.Services, manifests: parts.Manifests, state: parts.PackageStatus, meta: newMetaTags(), checks: checks,
	}
	if cfg.Console != "" {
		var err error
		if s.console, err = openConsole(cfg.Console); err != nil {
			return nil, err
		}
	}
	s.routes = slices.Concat(s.discoveryRoutes(), s.healthRoutes(), s.metaRoutes(), s.dataRoutes(), s.transactionRoutes(),
		s.transferRoutes(), s.packageRoutes(), s.notificationRoutes(), s.i18nRoutes(), s.openAPIRoutes(), s.consoleRoutes(), s.streamRoutes(), parts.Routes)
	// Without its database a host lives on, and says that it is not ready.
	checks.add("database", parts.Data.DB().Ping)
	mux, err := s.newRouter(s.routes)
	if err != nil {
		return nil, err
	}
	s.router.Store(mux)
	s.handler = s.layers()
	return s, nil
}

// layers are what every request goes through before it comes to the router.
func (s *Server) layers() http.Handler {
	routed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.router.Load().ServeHTTP(w, r) })
	// From the outside in: observe sees everything, panics too; preflights never
	// reach a route; paths are checked before anything looks at them.
	return s.observe(s.cors(plainText(routed)))
}

// SetRoutes serves the routes of a plugin that comes, changes and goes while the
// host runs, in place of those it had before; none removes it. Requests under
// way end where they began. On an error, a *[RouteConflictError] or
// *[RouteError], everything stays as it was.
func (s *Server) SetRoutes(plugin string, routes []core.Route) error {
	s.routing.Lock()
	defer s.routing.Unlock()
	late := maps.Clone(s.late)
	if late == nil {
		late = map[string][]OwnedRoute{}
	}
	delete(late, plugin)
	for _, route := range routes {
		late[plugin] = append(late[plugin], OwnedRoute{Route: route, Plugin: plugin})
	}
	all := slices.Clone(s.routes)
	for _, owner := range slices.Sorted(maps.Keys(late)) {
		all = append(all, late[owner]...)
	}
	mux, err := s.newRouter(all)
	if err != nil {
		return err
	}
	s.late = late
	s.router.Store(mux)
	return nil
}

// Routes lists all routes of the moment, the server's own first.
func (s *Server) Routes() []OwnedRoute { return s.allRoutes() }

// Handler serves the API without a socket, for tests and for hosts that bring
// their own server.
func (s *Server) Handler() http.Handler { return s.handler }

// AddReadinessCheck makes the host not ready while check returns an error. The
// name is shown to everybody, the error only logged. check must return when its
// context ends, which is after two seconds. The returned function removes it.
func (s *Server) AddReadinessCheck(name string, check func(context.Context) error) (remove func()) {
	return s.checks.add(name, check)
}

// OnShutdown calls f when a shutdown begins, before it waits for running
// requests, so that those without an end of their own come to one. f must
// return at once; it is called in a goroutine of its own when the shutdown has
// begun already.
func (s *Server) OnShutdown(f func()) { s.ending.add(f) }

// ending is what is called once when a shutdown begins.
type ending struct {
	mu    sync.Mutex
	begun bool
	calls []func()
}

func (e *ending) add(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.begun {
		go f()
		return
	}
	e.calls = append(e.calls, f)
}

func (e *ending) begin() {
	e.mu.Lock()
	e.begun = true
	calls := e.calls
	e.calls = nil
	e.mu.Unlock()
	for _, f := range calls {
		f()
	}
}

// Listen opens the socket and begins to serve. A *[ListenError] names the
// address when it cannot be had. Listening again changes nothing; after Shutdown
// it is [ErrStopped].
func (s *Server) Listen(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrStopped
	case s.http != nil:
		return nil
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", s.cfg.Addr)
	if err != nil {
		return listenError(s.cfg.Addr, err)
	}
	server := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: s.cfg.HeaderTimeout,
		ReadTimeout:       s.cfg.ReadTimeout,
		IdleTimeout:       s.cfg.IdleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		// What net/http has to say is about clients that break the protocol or
		// hang up, which is theirs to mend.
		ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
	served := make(chan struct{})
	s.http, s.listener, s.served = server, listener, served
	go func() {
		defer close(served)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.cfg.Logger.Error("server ended", "error", err)
		}
	}()
	s.cfg.Logger.InfoContext(ctx, "listening", "addr", listener.Addr().String())
	return nil
}

// listenError keeps the system's own words, without the address, which the
// error has already.
func listenError(addr string, err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		err = op.Err
	}
	return &ListenError{Addr: addr, Err: err}
}

// Addr is the address that the server listens on, "" while it does not.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// drain is the server's part of a host's stop: a Shutdown that leaves time for
// what stops after it.
func (s *Server) drain(ctx context.Context) error {
	budget := s.cfg.DrainTimeout
	if end, ok := ctx.Deadline(); ok {
		budget = min(budget, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	return s.Shutdown(ctx)
}

// Shutdown takes no more connections, ends event streams, and lets running
// requests finish until ctx ends; then it cuts them off and returns ctx's error. From its beginning the
// host is not ready.
func (s *Server) Shutdown(ctx context.Context) error {
	s.checks.stop()
	s.streams.end()
	s.ending.begin()
	s.mu.Lock()
	server, served := s.http, s.served
	s.http, s.listener, s.closed = nil, nil, true
	s.mu.Unlock()
	if server == nil {
		return nil
	}
	err := server.Shutdown(ctx)
	if err != nil {
		_ = server.Close() // it only reports listeners, which are closed
	}
	<-served
	return err
}
