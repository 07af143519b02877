package pluginhost

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/objecthost/objecthost/pluginhost/bundle"
	"github.com/objecthost/objecthost/pluginhost/process"
	"github.com/objecthost/objecthost/pluginsdk"
	pluginv1 "github.com/objecthost/objecthost/pluginsdk/proto/v1"
)

// killTime is what the last step of the stop ladder may take.
const killTime = 5 * time.Second

// maxSocket is what a path of a unix socket may be long; the smallest limit of
// the systems at hand is 104 with its end.
const maxSocket = 100

// instance is one generation of a plugin: a process and a connection to it.
type instance struct {
	name    string
	process *process.Process
	meter   *meter
	plugin  pluginv1.PluginClient
	client  *plugin.Client
	dir     string
	host    *hostServer
	calls   atomic.Uint64
	once    sync.Once

	mu       sync.Mutex
	users    int           // calls of the host that are under way
	draining bool          // takes no more calls
	idle     chan struct{} // closed when draining and without users
}

var _ running = (*instance)(nil)

// instanceSpec is what a generation is started from.
type instanceSpec struct {
	bundle  *bundle.Bundle
	runDir  string
	env     []string
	limits  process.Limits
	group   *process.Cgroup
	line    func(pid int, line []byte, cut bool)
	api     pluginsdk.Host
	config  json.RawMessage
	meter   *meter
	checked func() // called when the files were found to be what was signed
}

// startInstance starts a plugin and takes it through its handshake, Describe,
// Init and Start. When it fails nothing is left.
func startInstance(ctx context.Context, spec instanceSpec) (_ *instance, err error) {
	m := spec.bundle.Manifest
	dir, err := os.MkdirTemp(spec.runDir, strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return nil, err
	}
	i := &instance{name: m.Name, dir: dir, meter: spec.meter, idle: make(chan struct{})}
	defer func() {
		if err != nil {
			i.destroy()
		}
	}()
	path, args, err := spec.bundle.Materialize(filepath.Join(dir, "files"), runtime.GOOS+"/"+runtime.GOARCH)
	if err != nil {
		return nil, permanentError{err}
	}
	spec.checked()
	i.process = process.New(process.Spec{
		Name: m.Name, Path: path, Args: args, Dir: filepath.Join(dir, "files"), Env: spec.env, Limits: spec.limits, Cgroup: spec.group,
		Line: func(line []byte, cut bool) { spec.line(i.process.PID(), line, cut) },
	})
	if i.host, err = serveHost(filepath.Join(dir, "host.sock"), spec.api, spec.meter); err != nil {
		return nil, err
	}
	if err := i.connect(ctx, m); err != nil {
		return nil, i.explain(err)
	}
	if err := i.boot(ctx, m, spec.config); err != nil {
		return nil, i.explain(err)
	}
	return i, nil
}

// connect starts the process and waits for its handshake, within ctx.
func (i *instance) connect(ctx context.Context, m bundle.Manifest) error {
	timeout := time.Minute
	if deadline, ok := ctx.Deadline(); ok {
		timeout = time.Until(deadline)
	}
	i.client = plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  plugin.HandshakeConfig{MagicCookieKey: pluginsdk.CookieKey, MagicCookieValue: pluginsdk.CookieValue, ProtocolVersion: pluginsdk.ProtocolVersion},
		VersionedPlugins: map[int]plugin.PluginSet{pluginsdk.ProtocolVersion: {"plugin": clientPlugin{}}},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         m.Transport != "plain", SkipHostEnv: true, StartTimeout: timeout, Logger: hclog.NewNullLogger(),
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: i.dir},
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, _ string) (runner.Runner, error) {
			i.process.AddEnv(cmd.Env...)
			return i.process, nil
		},
		GRPCDialOptions: []grpc.DialOption{
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(pluginsdk.MaxMessage), grpc.MaxCallSendMsgSize(pluginsdk.MaxMessage)),
			grpc.WithUnaryInterceptor(i.meter.unary), grpc.WithStreamInterceptor(i.meter.stream),
		},
	})
	type dispensed struct {
		client pluginv1.PluginClient
		err    error
	}
	result := make(chan dispensed, 1)
	go func() {
		protocol, err := i.client.Client()
		if err != nil {
			result <- dispensed{err: err}
			return
		}
		raw, err := protocol.Dispense("plugin")
		client, _ := raw.(pluginv1.PluginClient)
		result <- dispensed{client, err}
	}()
	select {
	case d := <-result:
		i.plugin = d.client
		return d.err
	case <-ctx.Done():
		// The process is killed by the caller, which ends the goroutine.
		return fmt.Errorf("no handshake: %w", ctx.Err())
	}
}

// boot compares what the plugin says with its manifest, and starts it.
func (i *instance) boot(ctx context.Context, m bundle.Manifest, config json.RawMessage) error {
	says, err := i.plugin.Describe(ctx, &pluginv1.DescribeRequest{})
	if err != nil {
		return fmt.Errorf("describe: %w", pluginsdk.FromStatus(err))
	}
	if err := agrees(m, says); err != nil {
		return permanentError{err}
	}
	if _, err := i.plugin.Init(ctx, &pluginv1.InitRequest{Config: config, HostAddress: i.host.address, HostToken: i.host.token, Name: m.Name}); err != nil {
		return fmt.Errorf("init: %w", pluginsdk.FromStatus(err))
	}
	if _, err := i.plugin.Start(ctx, &pluginv1.StartRequest{}); err != nil {
		return fmt.Errorf("start: %w", pluginsdk.FromStatus(err))
	}
	return nil
}

func (i *instance) done() <-chan struct{} { return i.process.Done() }

func (i *instance) fault() error { return &ExitError{Plugin: i.name, Err: i.process.ExitError()} }

func (i *instance) health(ctx context.Context) (string, error) {
	answer, err := i.plugin.Health(ctx, &pluginv1.HealthRequest{})
	if status.Code(err) == codes.Unimplemented {
		return "", nil
	}
	return answer.GetProblem(), pluginsdk.FromStatus(err)
}

// acquire counts a call, unless the generation takes none any more. Every
// successful acquire is followed by a release.
func (i *instance) acquire() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.draining {
		return false
	}
	i.users++
	return true
}

func (i *instance) release() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.users--
	if i.users == 0 && i.draining {
		close(i.idle)
	}
}

// refuse takes no more calls.
func (i *instance) refuse() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.draining {
		return
	}
	i.draining = true
	if i.users == 0 {
		close(i.idle)
	}
}

// drain takes no more calls and waits up to grace for the end of those that are
// under way.
func (i *instance) drain(grace time.Duration) {
	i.refuse()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-i.idle:
	case <-i.done():
	case <-timer.C:
	}
}

// stop is the ladder: the Stop call, SIGTERM, SIGKILL, each with its time.
func (i *instance) stop(grace time.Duration) {
	i.refuse()
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	// The call gets most of the time; its error says no more than that the
	// next step is needed.
	callCtx, cancelCall := context.WithTimeout(ctx, grace*3/4)
	_, _ = i.plugin.Stop(callCtx, &pluginv1.StopRequest{})
	cancelCall()
	i.process.Terminate()
	_ = i.process.Wait(ctx)
	i.destroy()
}

// destroy ends everything that belongs to the generation, in whatever state it
// is.
func (i *instance) destroy() {
	i.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), killTime)
		defer cancel()
		if i.process != nil {
			// Only an uninterruptible process outlives this; nothing helps it.
			_ = i.process.Kill(ctx)
		}
		if i.client != nil {
			// The process is dead, so that Kill has nobody to wait for. It
			// closes the connection and removes the socket.
			killed := make(chan struct{})
			go func() { defer close(killed); i.client.Kill() }()
			select {
			case <-killed:
			case <-ctx.Done():
			}
		}
		if i.host != nil {
			i.host.close()
		}
		_ = os.RemoveAll(i.dir)
	})
}

// call marks a call of the host to the plugin, so that calls that the plugin
// makes meanwhile are known to belong to it. Call end when it has returned.
func (i *instance) call(ctx context.Context, inTransaction bool) (_ context.Context, end func()) {
	id := strconv.FormatUint(i.calls.Add(1), 36)
	i.host.began(id, inTransaction)
	return metadata.AppendToOutgoingContext(ctx, pluginsdk.MetadataCall, id), func() { i.host.ended(id) }
}

// callError is what a call to the plugin ended in, nil for nil. ctx is the
// call's. A call that is broken off although its caller still waits ends so
// because the generation does: the supervisor, which learns of the process's
// death from the operating system, may close the connection before its reader
// has met the end of it.
func (i *instance) callError(ctx context.Context, err error) error {
	err = pluginsdk.FromStatus(err)
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		return &pluginsdk.Error{Code: pluginsdk.CodeUnavailable, Retryable: true, Message: fmt.Sprintf("the plugin %s ended while it was called", i.name)}
	}
	return err
}

// clientPlugin makes the client of a connection.
type clientPlugin struct{ plugin.NetRPCUnsupportedPlugin }

func (clientPlugin) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error {
	return errors.New("pluginhost: a host is no plugin")
}

func (clientPlugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return pluginv1.NewPluginClient(conn), nil
}

// listen opens a unix socket. Its folder is the host's alone.
func listen(path string) (net.Listener, error) {
	if len(path) > maxSocket {
		return nil, fmt.Errorf("pluginhost: the socket's path %s is longer than %d bytes: choose a shorter RunDir", path, maxSocket)
	}
	return net.Listen("unix", path)
}

func newToken() string { return rand.Text() }
