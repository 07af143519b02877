// Package cluster does harm to three hosts on one PostgreSQL server while
// records are written through their APIs: it kills one, stops one for longer
// than its lease, cuts one off from the database, restarts the database. Then
// it checks that every change was delivered, unaltered, in order and within the
// limits, that others took over in time, and that nothing was delivered twice
// but what was in flight. Hosts, database and receiver are processes of their
// own, and where the machine allows it each host has a network of its own.
package cluster

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/objecthost/objecthost/e2e/proc"
	"github.com/objecthost/objecthost/e2e/receiver"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/dsn"
)

// Nodes is the number of hosts.
const Nodes = 3

// Kinds of faults.
const (
	Kill    = "kill"    // a host is killed
	Stop    = "stop"    // a host sleeps through its lease and wakes up
	Cut     = "cut"     // a host is cut off from the database
	Restart = "restart" // the database is restarted
)

// Kinds lists them.
var Kinds = []string{Kill, Stop, Cut, Restart}

// Kinds of networks.
const (
	Namespaces = "namespaces"
	Proxies    = "proxies"
)

// Config describes a run.
type Config struct {
	// Bin is the host binary, Dir a folder for files.
	Bin, Dir string
	// Faults are done one after the other.
	Faults []string
	// Network is Namespaces, Proxies, or empty for what the machine allows.
	Network string
	// Env is added to the hosts' environment.
	Env []string
	// Settle is how long it may take after a fault until all is delivered (90 s).
	Settle time.Duration
	// Grace is how much longer than a lease a takeover may take (1 s).
	Grace time.Duration
	// Log receives a line per fault; nil discards.
	Log io.Writer
}

// hook is a webhook and what is expected of it.
type hook struct {
	path, object string
	triggers     []string
	definition   map[string]any
	answer       receiver.Answer
	// ordered tells that first attempts of one key are in order, blocking that
	// all attempts are; serial that all rows have one key.
	ordered, blocking, serial bool
	// most is the number of requests at once, 0 for any; perSecond and burst are
	// of its rate.
	most             int
	perSecond, burst float64
	// home tells that one node serves all its rows.
	home bool
}

// timeout is every webhook's. A row in flight is taken over when its claim
// ends, which is 10 s later than that.
const timeout = 4 * time.Second

// slow is the webhook whose requests are held when a host is stopped.
const slow = "/slow"

var hooks = []hook{
	{path: "/record", object: "account", triggers: []string{"create", "update"}, answer: receiver.Answer{Delay: 3 * time.Millisecond}, ordered: true},
	{
		path: "/blocking", object: "account", triggers: []string{"create", "update"}, ordered: true, blocking: true,
		answer: receiver.Answer{Delay: 3 * time.Millisecond, FailEvery: 10},
		definition: map[string]any{
			"blockOnRetry": true, "retryPolicy": map[string]any{"maxRetries": 10, "initialDelayMs": 300, "backoffStrategy": "fixed"},
		},
	},
	{
		path: "/few", object: "account", triggers: []string{"create"}, answer: receiver.Answer{Delay: 10 * time.Millisecond},
		definition: map[string]any{"maxConcurrency": 2}, most: 2, home: true, ordered: true,
	},
	{
		path: "/many", object: "account", triggers: []string{"create"}, answer: receiver.Answer{Delay: 40 * time.Millisecond},
		definition: map[string]any{"maxConcurrency": 18}, most: 18, ordered: true,
	},
	{path: slow, object: "account", triggers: []string{"create"}, answer: receiver.Answer{Delay: 400 * time.Millisecond, Holds: true}, ordered: true},
	{
		path: "/serial", object: "ticket", triggers: []string{"create"}, answer: receiver.Answer{Delay: 3 * time.Millisecond},
		definition: map[string]any{"ordering": "webhook"}, ordered: true, serial: true, home: true,
	},
	{
		path: "/rate", object: "ticket", triggers: []string{"create"}, answer: receiver.Answer{Delay: 3 * time.Millisecond},
		definition: map[string]any{"rateLimit": map[string]any{"perSecond": 12, "burst": 3}}, perSecond: 12, burst: 3, home: true, ordered: true,
	},
}

const objectYAML = `name: %s
label: %[1]s
fields:
  name: {type: text, label: Name, required: true}
  mark: {type: text, label: Mark}
`

// node is one host, over all its lives.
type node struct {
	number int
	args   []string
	url    string
	key    string

	host *proc.Host
	name string // in the database, of this life

	until atomic.Int64 // avoided by writers until then, in Unix nanoseconds
}

func (n *node) api() proc.API         { return proc.API{URL: n.url, Key: n.key} }
func (n *node) avoided() bool         { return time.Now().UnixNano() < n.until.Load() }
func (n *node) avoid(d time.Duration) { n.until.Store(time.Now().Add(d).UnixNano()) }

// runner is one run.
type runner struct {
	cfg      Config
	net      network
	server   *proc.PostgresServer
	receiver *receiver.Receiver
	db       *storage.DB
	nodes    []*node
	names    map[string]int // every name that a node ever had
	writers  *writers
	faults   []*fault
	report   *Report
}

// Run does a run. An error means that it could not be done, not that a promise
// was broken: that is in the report.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if cfg.Settle == 0 {
		cfg.Settle = 90 * time.Second
	}
	if cfg.Grace == 0 {
		cfg.Grace = time.Second
	}
	if cfg.Log == nil {
		cfg.Log = io.Discard
	}
	r := &runner{cfg: cfg, names: make(map[string]int)}
	defer func() { r.end() }()
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	writing, stop := context.WithCancel(ctx)
	r.writers = newWriters(r.nodes)
	r.writers.run(writing)
	defer r.writers.group.Wait()
	defer stop()
	for _, kind := range cfg.Faults {
		if err := r.round(ctx, kind); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", kind, err, r.outputs())
		}
		if !r.report.OK() {
			break
		}
	}
	return r.report, nil
}

func (r *runner) begin(ctx context.Context) (err error) {
	if r.net, err = newNetwork(ctx, r.cfg.Network); err != nil {
		return err
	}
	if r.server, err = proc.StartPostgres(ctx, r.cfg.Dir, benchmarks); err != nil {
		return err
	}
	if err := r.net.open(r.server); err != nil {
		return err
	}
	if r.db, err = dsn.Open(ctx, r.server.DSN("127.0.0.1"), storage.Config{MaxConns: 3}); err != nil {
		return err
	}
	secret := rand.Text()
	paths := make(map[string]receiver.Answer)
	for _, h := range hooks {
		paths[h.path] = h.answer
	}
	r.receiver, err = receiver.Start(ctx, receiver.Config{Secret: secret, Addr: net.JoinHostPort(r.net.receiverIP(), "0"), Paths: paths})
	if err != nil {
		return err
	}
	if err := r.startNodes(ctx); err != nil {
		return err
	}
	for _, h := range hooks {
		definition := map[string]any{"timeoutMs": timeout.Milliseconds()}
		for k, v := range h.definition {
			definition[k] = v
		}
		text, err := json.Marshal(definition)
		if err != nil {
			return err
		}
		if err := r.nodes[0].api().Create(ctx, "sys_webhook", map[string]any{
			"name": h.path[1:], "object_name": h.object, "triggers": h.triggers, "active": true, "method": "post",
			"url": "http://" + r.receiver.Addr + h.path, "definition_json": string(text), "signing_secret": secret,
		}); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) startNodes(ctx context.Context) error {
	objects := filepath.Join(r.cfg.Dir, "objects")
	if err := os.Mkdir(objects, 0o700); err != nil {
		return err
	}
	for _, name := range []string{"account", "ticket"} {
		if err := os.WriteFile(filepath.Join(objects, name+".yaml"), fmt.Appendf(nil, objectYAML, name), 0o600); err != nil {
			return err
		}
	}
	for i := range Nodes {
		// A namespace has no port in use, and the process can't ask in there.
		addr := net.JoinHostPort(r.net.listenIP(i), "8080")
		if _, shared := r.net.(*proxies); shared {
			var err error
			if addr, err = proc.FreeAddr(r.net.listenIP(i)); err != nil {
				return err
			}
		}
		n := &node{number: i, url: "http://" + addr, args: []string{
			"--db", r.net.dsn(i), "--listen", addr, "--objects", objects, "--egress-allow", r.net.egress(),
			"--log-level", "warn", "--key-file", filepath.Join(r.cfg.Dir, "host.key"),
		}}
		r.nodes = append(r.nodes, n)
		if err := r.start(ctx, n); err != nil {
			return err
		}
		n.key = r.nodes[0].host.Key
	}
	if r.nodes[0].key == "" {
		return fmt.Errorf("the first host printed no API key:\n%s", r.nodes[0].host.Output())
	}
	return nil
}

// start begins a life of a node.
func (r *runner) start(ctx context.Context, n *node) error {
	starting, cancel := context.WithTimeout(ctx, proc.WaitListening)
	defer cancel()
	options := r.net.host(n.number)
	options.Env = r.cfg.Env
	host, err := options.Start(starting, r.cfg.Bin, n.args)
	if err != nil {
		return err
	}
	n.host = host
	if err := r.receiver.Node(n.number, r.net.from(n.number, host)); err != nil {
		return err
	}
	// Its row is the only new one.
	return r.until(starting, "a host is registered", func() (bool, error) {
		rows, err := r.db.Read(ctx).QueryContext(ctx, `SELECT name FROM sys_node`)
		if err != nil {
			return false, err
		}
		defer rows.Close()
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				return false, err
			}
			if _, known := r.names[name]; !known {
				n.name, r.names[name] = name, n.number
				return true, nil
			}
		}
		return false, rows.Err()
	})
}

// until asks again and again, also through a loss of the database.
func (r *runner) until(ctx context.Context, what string, ask func() (bool, error)) error {
	for {
		done, err := ask()
		if err == nil && done {
			return nil
		}
		if !pause(ctx, 50*time.Millisecond) {
			return errors.Join(fmt.Errorf("waited in vain until %s: %w", what, ctx.Err()), err)
		}
	}
}

// pause waits for a while; false when ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// between is a random time.
func between(low, high time.Duration) time.Duration {
	return low + time.Duration(mathrand.Int64N(int64(high-low)))
}

func (r *runner) outputs() (all string) {
	for _, n := range r.nodes {
		if n.host != nil {
			all += fmt.Sprintf("--- host %d, %s\n%s", n.number, n.name, tail(n.host.Output(), 4000))
		}
	}
	return all
}

func tail(text string, n int) string { return text[max(0, len(text)-n):] }

func (r *runner) end() {
	var all sync.WaitGroup
	for _, n := range r.nodes {
		if n.host != nil {
			all.Go(n.host.Kill)
		}
	}
	all.Wait()
	if r.receiver != nil {
		r.receiver.Stop()
	}
	if r.db != nil {
		_ = r.db.Close()
	}
	if r.net != nil {
		r.net.close()
	}
	if r.server != nil {
		_ = r.server.Stop(syscall.SIGQUIT)
	}
}
