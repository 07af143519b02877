// Package lease divides the partitions among the processes that share a
// database.
//
// Each process holds ranges of partitions for as long as it renews its lease,
// one statement at a time for all of them, judged by the database's clock. A
// range changes hands when its holder gives it up, or when the holder's lease
// has ended and its row is gone. What a process writes about its ranges names
// its token: a statement that finds no live row of the token in sys_node must
// change nothing, and by locking that row (FOR KEY SHARE) it keeps others from
// taking the ranges before its own commit. So a process that slept through its
// lease does nothing when it wakes up.
//
// On SQLite one process holds everything, and the lock of the file is its lease.
package lease

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/objecthost/objecthost/storage"
)

//go:embed migrations
var files embed.FS

// Migrations are the tables sys_node and sys_lease.
func Migrations() storage.Migrations {
	sub, err := fs.Sub(files, "migrations")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return storage.Migrations{Name: "lease", FS: sub}
}

// Config configures a [Holder]. Node is required.
type Config struct {
	// Node names the process in logs and in sys_node.
	Node string
	// TTL is how long a lease lasts without being renewed (10 s, at least 1 s).
	TTL time.Duration
	// Logger receives changes; nil discards.
	Logger *slog.Logger
}

// IdleTransaction is how long a transaction that locks a process's lease may sit
// idle, see [storage.DB.BoundedSQL]. A takeover may have to wait for it.
const IdleTransaction = 5 * time.Second

// Held is what a process holds at one moment.
type Held struct {
	// Ranges is empty when the lease was not renewed in time.
	Ranges Set
	// Token fences writes; it is empty where everything is always granted.
	Token string
}

// Watcher is told the ranges that are held after a change. When it has lost
// some it returns once it does nothing with them any more, or when ctx ends.
type Watcher func(ctx context.Context, held Set)

// Holder holds ranges for one process. It is safe for concurrent use.
type Holder struct {
	db  *storage.DB // nil where everything is always granted
	cfg Config

	mu       sync.Mutex
	held     Held
	until    time.Time // the lease's end by this process's monotonic clock
	watchers []Watcher
	users    int // Start without Stop
	cancel   context.CancelFunc
	done     chan struct{}
	lastErr  error
}

// New returns a holder on a database with [Migrations]. It holds nothing before
// Start, and everything at any time on SQLite.
func New(db *storage.DB, cfg Config) (*Holder, error) {
	if cfg.TTL == 0 {
		cfg.TTL = 10 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Node == "" {
		return nil, errors.New("lease: Config.Node is required")
	}
	if cfg.TTL < time.Second {
		return nil, fmt.Errorf("lease: Config.TTL is %s, want 1s or more", cfg.TTL)
	}
	if db.Dialect() == storage.SQLite {
		return &Holder{held: Held{Ranges: All}}, nil
	}
	return &Holder{db: db, cfg: cfg}, nil
}

// Held returns what this process holds now.
func (h *Holder) Held() Held {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.db != nil && !time.Now().Before(h.until) {
		return Held{Token: h.held.Token}
	}
	return h.held
}

// Watch adds a watcher. Call it before Start.
func (h *Holder) Watch(w Watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers = append(h.watchers, w)
}

// Health is the last error of renewing the lease, nil when it was renewed.
func (h *Holder) Health() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lastErr
}

// Start registers the process, takes what is free, and goes on in the
// background until Stop has been called as often as Start. A database that is
// away is waited for in the background.
func (h *Holder) Start(ctx context.Context) error {
	if h.db == nil {
		return nil
	}
	h.mu.Lock()
	h.users++
	if h.users > 1 {
		h.mu.Unlock()
		return nil
	}
	loopCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	started := make(chan struct{})
	h.cancel, h.done = cancel, make(chan struct{})
	go h.run(loopCtx, started, h.done)
	h.mu.Unlock()
	select {
	case <-started:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stop gives up what is held, after the watchers have let go of it, so that
// other processes need not wait for the lease's end.
func (h *Holder) Stop(ctx context.Context) error {
	if h.db == nil {
		return nil
	}
	h.mu.Lock()
	h.users--
	last := h.users == 0
	cancel, done := h.cancel, h.done
	h.mu.Unlock()
	if !last {
		return nil
	}
	cancel()
	select {
	case <-done:
	case <-ctx.Done():
		return ctx.Err()
	}
	token := h.token()
	if token == "" {
		return nil
	}
	h.hold(ctx, Held{})
	return h.leave(ctx, token)
}

func (h *Holder) token() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held.Token
}

// run renews the lease and keeps the share right.
func (h *Holder) run(ctx context.Context, started, done chan struct{}) {
	defer close(done)
	for first := true; ; first = false {
		wait, err := h.tick(ctx)
		if err != nil && ctx.Err() == nil {
			h.failed(err)
			wait = min(wait, h.cfg.TTL/10)
		}
		h.mu.Lock()
		h.lastErr = err
		h.mu.Unlock()
		if first {
			close(started)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		h.expireHere()
	}
}

// failed logs the first of several failures in a row.
func (h *Holder) failed(err error) {
	h.mu.Lock()
	again := h.lastErr != nil
	h.mu.Unlock()
	if !again {
		h.cfg.Logger.Error("lease can't be renewed, waiting for the database", "error", err)
	}
}

// expireHere tells the watchers when the lease ended for want of renewal.
func (h *Holder) expireHere() {
	h.mu.Lock()
	over := h.held.Ranges != 0 && !time.Now().Before(h.until)
	token := h.held.Token
	h.mu.Unlock()
	if over {
		h.cfg.Logger.Warn("lease ended without being renewed")
		h.lose(token)
	}
}

// lose tells the watchers that all is lost, without waiting for them: others
// may have taken it already.
func (h *Holder) lose(token string) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	h.hold(ctx, Held{Token: token})
}

// hold sets what is held and tells the watchers when it has changed.
func (h *Holder) hold(ctx context.Context, held Held) {
	h.mu.Lock()
	before := h.held
	h.held = held
	watchers := h.watchers
	h.mu.Unlock()
	if before.Ranges == held.Ranges {
		return
	}
	h.cfg.Logger.Info("ranges of partitions changed", "held", held.Ranges.Len(), "before", before.Ranges.Len(), "of", Ranges)
	var all sync.WaitGroup
	for _, w := range watchers {
		all.Go(func() { w(ctx, held.Ranges) })
	}
	all.Wait()
}

func newToken() string { return rand.Text() }
