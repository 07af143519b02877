package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/objecthost/objecthost/services/messaging"
	messagingstore "github.com/objecthost/objecthost/services/messaging/sqlstore"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/services/realtime/sqllog"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/lease"
	"github.com/objecthost/objecthost/storage/seal"
)

// box is what a scenario works with: a fresh database and a receiver.
type box struct {
	cfg      Config
	db       *database
	receiver *receiver
	keys     *seal.Keyring
	log      *slog.Logger
	profile  *profile
	leases   *lease.Holder
}

// scenario is one kind of measurement on a fresh database.
type scenario func(ctx context.Context, b *box) (Figures, error)

// measure runs scenarios and reports.
func measure(ctx context.Context, cfg Config, names []string, scenarios map[string]scenario) (_ *Report, err error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	r, err := startReceiver(ctx, cfg.Receiver)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	p := &profile{path: cfg.Profile}
	defer func() { err = errors.Join(err, p.stop()) }()
	report := &Report{Machine: Machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), LoadBefore: load()}}
	for _, name := range names {
		fmt.Fprintf(cfg.Progress, "%s:\n", name)
		f, settings, err := alone(ctx, box{cfg: cfg, receiver: r, profile: p}, scenarios[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		f.Scenario = name
		report.Settings = settings
		report.Scenarios = append(report.Scenarios, f)
	}
	report.Machine.LoadAfter = load()
	report.Figures = report.Scenarios[0]
	if len(report.Scenarios) == 1 {
		report.Scenarios = nil
	}
	for _, f := range report.Scenarios {
		if f.Scenario == Latency {
			report.P50, report.P99 = f.P50, f.P99
		}
	}
	return report, nil
}

// alone runs one scenario on a database of its own.
func alone(ctx context.Context, b box, do scenario) (f Figures, s Settings, err error) {
	if b.db, err = openDatabase(ctx, b.cfg.DB); err != nil {
		return f, s, err
	}
	defer func() { err = errors.Join(err, b.db.close()) }()
	settings, err := b.db.Settings(ctx)
	if err != nil {
		return f, s, fmt.Errorf("read the database's settings: %w", err)
	}
	if b.keys, err = seal.Generate(); err != nil {
		return f, s, err
	}
	if err := b.hold(); err != nil {
		return f, s, err
	}
	// A host logs a line per attempt by default. It is made here too, and
	// thrown away; only errors are shown.
	b.log = slog.New(slog.NewMultiHandler(slog.NewTextHandler(io.Discard, nil),
		slog.NewTextHandler(b.cfg.Log, &slog.HandlerOptions{Level: slog.LevelError})))
	f, err = do(ctx, &b)
	return f, settingsOf(settings), err
}

// hold prepares the leases of the host on the database as it is opened now.
func (b *box) hold() (err error) {
	b.leases, err = lease.New(b.db.DB, lease.Config{Node: "bench"})
	return err
}

// progress tells of a step.
func (b *box) progress(format string, args ...any) {
	fmt.Fprintf(b.cfg.Progress, "  "+format+"\n", args...)
}

// url is where the deliveries of webhook i go.
func (b *box) url(i int) string { return b.receiver.In + "/in/" + strconv.Itoa(i) }

// outbox returns the outbox of a host, not started.
func (b *box) outbox(events messaging.EventLog, onAttempt func(messaging.Delivery, messaging.Attempt)) (*messaging.Service, error) {
	allow, err := messaging.ParseEgressAllow([]string{"127.0.0.1"})
	if err != nil {
		return nil, err
	}
	return messaging.New(messaging.Config{
		Store: messagingstore.New(b.db.DB), Tx: b.db, Events: events, Sealer: b.keys, Logger: b.log,
		Exclusive: b.db.Dialect() == storage.SQLite, Node: "bench", Leases: b.leases,
		Sender:    messaging.SenderConfig{Egress: messaging.EgressConfig{Allow: allow}, Logger: b.log},
		OnAttempt: onAttempt,
	})
}

func (b *box) events() (*realtime.Service, error) {
	return realtime.New(b.db, sqllog.New(b.db.DB, b.log), realtime.Config{Logger: b.log, Leases: b.leases})
}

// lone returns an outbox without the rest of a host.
func (b *box) lone(m *meter) (*messaging.Service, error) {
	events, err := b.events()
	if err != nil {
		return nil, err
	}
	return b.outbox(events, m.attempt)
}

// stop ends an outbox also when the context has ended.
func stop(ctx context.Context, service *messaging.Service) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanLimit)
	defer cancel()
	return service.Stop(ctx)
}

// meter waits for a number of deliveries to be recorded as success.
type meter struct {
	want int
	done chan struct{} // closed when all are

	mu   sync.Mutex
	ok   int
	last time.Time // when the last outcome was committed
}

func newMeter(want int) *meter { return &meter{want: want, done: make(chan struct{})} }

// attempt is called after an attempt's outcome is committed.
func (m *meter) attempt(_ messaging.Delivery, a messaging.Attempt) {
	if !a.Success() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ok++
	m.last = time.Now()
	if m.ok == m.want {
		close(m.done)
	}
}

// wait returns when the last outcome was committed.
func (m *meter) wait(ctx context.Context) (time.Time, error) {
	select {
	case <-m.done:
	case <-ctx.Done():
		m.mu.Lock()
		defer m.mu.Unlock()
		return time.Time{}, fmt.Errorf("%d of %d deliveries ended: %w", m.ok, m.want, context.Cause(ctx))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last, nil
}

// counts is what three witnesses say about a run.
type counts struct {
	rows, unique, attempts int
	bytes                  int64
}

// boundary is the largest id of a delivery so far. Ids grow with time, so that
// a run's rows are those above.
func (b *box) boundary(ctx context.Context) (id string, err error) {
	err = b.db.Read(ctx).QueryRowContext(ctx, "SELECT coalesce(max(id), '') FROM sys_http_delivery").Scan(&id)
	if err != nil {
		err = fmt.Errorf("read the last delivery: %w", err)
	}
	return id, err
}

// verify counts the deliveries after a boundary and compares the counts with
// what was wanted.
func (b *box) verify(ctx context.Context, after string, want int) (c counts, err error) {
	if c.rows, err = b.db.count(ctx, "SELECT count(*) FROM sys_http_delivery WHERE id > ? AND status = 'success'", after); err != nil {
		return c, err
	}
	// An attempt's id is its delivery's with a suffix that begins with a point;
	// a slash comes right after it.
	if c.attempts, err = b.db.count(ctx, "SELECT count(*) FROM sys_http_attempt WHERE id > ?", after+"/"); err != nil {
		return c, err
	}
	got, err := b.receiver.tally()
	if err != nil {
		return c, err
	}
	c.unique, c.bytes = got.Unique, got.Bytes
	if got.Wrong != 0 {
		return c, fmt.Errorf("%d requests came with a signature that does not fit", got.Wrong)
	}
	if c.rows != want || c.unique != want || c.attempts != want {
		return c, fmt.Errorf("%d deliveries were due, but %d ended as success, %d different ones arrived and %d attempts are on record",
			want, c.rows, c.unique, c.attempts)
	}
	return c, nil
}
