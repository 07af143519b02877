package pluginsdk

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/objecthost/objecthost/core"
	pluginv1 "github.com/objecthost/objecthost/pluginsdk/proto/v1"
)

// lastWords is how long a plugin may drain when it has to end.
const lastWords = 5 * time.Second

// stdout is the real standard output, which carries the handshake. Until Serve
// takes it, everything that is printed goes to standard error: this variable is
// set before any code of the plugin's own packages runs.
var stdout = guardStdout()

func guardStdout() *os.File {
	out := os.Stdout
	if os.Getenv(CookieKey) == CookieValue {
		os.Stdout = os.Stderr
	}
	return out
}

// Serve runs p as the plugin of this process and returns never. It is all that
// a main function does. Called as "describe" the program writes what the plugin
// contributes as JSON, for the manifest of its bundle; started by nobody's
// host, it says so and ends.
func Serve(p core.Plugin) {
	guest, err := NewGuest(p)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if len(os.Args) == 2 && os.Args[1] == "describe" {
		os.Exit(describe(stdout, guest))
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	slog.SetDefault(log)
	if os.Getenv(CookieKey) == CookieValue {
		go endOnSignal(guest)
		go endWithHost(guest, os.Stdin)
	}
	os.Stdout = stdout
	served := &server{guest: guest, log: log}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  plugin.HandshakeConfig{MagicCookieKey: CookieKey, MagicCookieValue: CookieValue, ProtocolVersion: ProtocolVersion},
		VersionedPlugins: map[int]plugin.PluginSet{ProtocolVersion: {"plugin": &grpcPlugin{server: served}}},
		GRPCServer:       served.newServer,
		Logger:           hclog.NewNullLogger(),
	})
	os.Exit(0)
}

// Description is what "describe" prints: the parts of a bundle's manifest that
// the program knows.
type Description struct {
	ID          string      `json:"id"`
	Version     string      `json:"version"`
	Contributes Declaration `json:"contributes"`
}

func describe(w io.Writer, g *Guest) int {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	m := g.Manifest()
	if err := encoder.Encode(Description{ID: m.ID, Version: m.Version, Contributes: g.Declaration()}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// grpcPlugin registers the server with go-plugin.
type grpcPlugin struct {
	plugin.NetRPCUnsupportedPlugin
	server *server
}

func (p *grpcPlugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	pluginv1.RegisterPluginServer(s, p.server)
	return nil
}

func (p *grpcPlugin) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, fmt.Errorf("pluginsdk: a plugin is no host")
}

// newServer bounds messages, goes on with traces, turns panics into errors and
// errors into statuses.
func (s *server) newServer(opts []grpc.ServerOption) *grpc.Server {
	unary := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any, err error) {
		ctx, span := s.span(ctx, info.FullMethod)
		defer func() { EndSpan(span, err); err = ToStatus(err) }()
		defer recovered(&err)
		return next(ctx, req)
	}
	stream := func(srv any, raw grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
		ctx, span := s.span(raw.Context(), info.FullMethod)
		defer func() { EndSpan(span, err); err = ToStatus(err) }()
		defer recovered(&err)
		return next(srv, tracedStream{raw, ctx})
	}
	return grpc.NewServer(append(opts, grpc.MaxRecvMsgSize(MaxMessage), grpc.MaxSendMsgSize(MaxMessage),
		grpc.UnaryInterceptor(unary), grpc.StreamInterceptor(stream))...)
}

// endOnSignal drains and ends when the host asks by SIGTERM.
func endOnSignal(g *Guest) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	<-signals
	end(g)
}

// endWithHost ends the process when its host has gone: the host holds the other
// end of standard input and never writes to it.
func endWithHost(g *Guest, stdin io.Reader) {
	_, _ = io.Copy(io.Discard, stdin)
	end(g)
}

func end(g *Guest) {
	// The log may have no reader any more; that must not end the drain.
	signal.Ignore(syscall.SIGPIPE)
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Stop(ctx) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
	os.Exit(0)
}
