// Package chaos kills a host again and again while records are written through
// its API, and checks afterwards that every record whose write was acknowledged
// was delivered, unaltered, and that nothing was delivered twice but what was
// in flight at a kill. Writer, host and receiver are three processes.
package chaos

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/objecthost/objecthost/e2e/proc"
	"github.com/objecthost/objecthost/e2e/receiver"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/dsn"
)

// Config describes a run.
type Config struct {
	// Bin is the host binary, DSN an empty database, Dir a folder for files.
	Bin, DSN, Dir string
	// Kills is the number of kills that count.
	Kills int
	// Writers is the number of goroutines that create records (4), the first of
	// them a hundred at once.
	Writers int
	// Env is added to the host's environment.
	Env []string
	// Settle is how long the host may take to deliver everything after the
	// last kill (90 s).
	Settle time.Duration
	// Log receives a line per kill; nil discards.
	Log io.Writer
}

// The phases in which a kill can hit a record.
const (
	CommitToMatch = "commit→match"
	MatchToClaim  = "match→claim"
	ClaimToSend   = "claim→send"
	SendToOutcome = "send→outcome"
)

// Phases lists them in order.
var Phases = []string{CommitToMatch, MatchToClaim, ClaimToSend, SendToOutcome}

// Report is the result of a run.
type Report struct {
	// Acknowledged counts records whose API call answered 201, Arrivals the
	// requests that the receiver got.
	Acknowledged, Arrivals int
	// Kills counts the kills that hit records on their way, Phases how many of
	// them hit each phase.
	Kills  int
	Phases map[string]int
	// Lost counts acknowledged records without a delivery, Altered requests
	// whose signature or bytes are wrong, Duplicates requests seen again whose
	// delivery was in flight at a kill, StrayDuplicates the other ones.
	Lost, Altered, Duplicates, StrayDuplicates int
}

// OK tells that no promise was broken.
func (r *Report) OK() bool { return r.Lost == 0 && r.Altered == 0 && r.StrayDuplicates == 0 }

// Line is the report as one line, which begins with OK or FAILED.
func (r *Report) Line() string {
	verdict := "OK"
	if !r.OK() {
		verdict = "FAILED"
	}
	return fmt.Sprintf("%s lost=%d altered=%d stray_duplicates=%d kills=%d acknowledged=%d arrivals=%d duplicates=%d %s=%d %s=%d %s=%d %s=%d",
		verdict, r.Lost, r.Altered, r.StrayDuplicates, r.Kills, r.Acknowledged, r.Arrivals, r.Duplicates,
		CommitToMatch, r.Phases[CommitToMatch], MatchToClaim, r.Phases[MatchToClaim],
		ClaimToSend, r.Phases[ClaimToSend], SendToOutcome, r.Phases[SendToOutcome])
}

// Add sums up two runs.
func (r *Report) Add(o *Report) {
	r.Acknowledged += o.Acknowledged
	r.Arrivals += o.Arrivals
	r.Kills += o.Kills
	r.Lost += o.Lost
	r.Altered += o.Altered
	r.Duplicates += o.Duplicates
	r.StrayDuplicates += o.StrayDuplicates
	for phase, n := range o.Phases {
		r.Phases[phase] += n
	}
}

const accountYAML = `name: account
label: Account
fields:
  name: {type: text, label: Name, required: true}
`

// runner is one run.
type runner struct {
	cfg      Config
	receiver *receiver.Receiver
	host     *proc.Host
	db       *storage.DB
	args     []string
	api      proc.API

	mu       sync.Mutex
	acked    []string
	arrived  map[string]int // requests per delivery before the last kill
	inFlight map[string]int // how often a delivery was in flight at a kill
	since    atomic.Int64   // records acknowledged since the last kill
	report   Report
}

// Run does a run. An error means that it could not be done, not that a promise
// was broken: that is in the report.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if cfg.Writers == 0 {
		cfg.Writers = 4
	}
	if cfg.Settle == 0 {
		cfg.Settle = 90 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = io.Discard
	}
	r := &runner{cfg: cfg, inFlight: make(map[string]int), report: Report{Phases: make(map[string]int)}}
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.end()
	writers, stopWriters := context.WithCancel(ctx)
	var group sync.WaitGroup
	for n := range cfg.Writers {
		group.Add(1)
		go func() {
			defer group.Done()
			r.write(writers, n)
		}()
	}
	err := r.killAll(ctx)
	stopWriters()
	group.Wait()
	if err != nil {
		return nil, err
	}
	r.settle(ctx)
	r.judge()
	return &r.report, nil
}

func (r *runner) begin(ctx context.Context) (err error) {
	secret := rand.Text()
	if r.receiver, err = receiver.Start(ctx, receiver.Config{Secret: secret}); err != nil {
		return err
	}
	objects := filepath.Join(r.cfg.Dir, "objects")
	if err := os.MkdirAll(objects, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(objects, "account.yaml"), []byte(accountYAML), 0o600); err != nil {
		return err
	}
	addr, err := proc.FreeAddr("127.0.0.1")
	if err != nil {
		return err
	}
	r.args = []string{
		"--db", r.cfg.DSN, "--listen", addr, "--objects", objects, "--egress-allow", "127.0.0.1", "--log-level", "error",
		"--key-file", filepath.Join(r.cfg.Dir, "host.key"),
	}
	if err := r.startHost(ctx); err != nil {
		return err
	}
	if r.host.Key == "" {
		return fmt.Errorf("the host printed no API key:\n%s", r.host.Output())
	}
	r.api = proc.API{URL: "http://" + addr, Key: r.host.Key}
	if r.db, err = dsn.Open(ctx, r.cfg.DSN, storage.Config{MaxConns: 2}); err != nil {
		return err
	}
	hook := map[string]any{
		"name": "chaos", "object_name": "account", "triggers": []string{"create"}, "active": true, "method": "post",
		"url": "http://" + r.receiver.Addr + "/hook", "definition_json": `{"timeoutMs":1000}`, "signing_secret": secret,
	}
	return r.api.Create(ctx, "sys_webhook", hook)
}

func (r *runner) startHost(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, proc.WaitListening)
	defer cancel()
	r.host, err = proc.Start(ctx, r.cfg.Bin, r.args, r.cfg.Env...)
	return err
}

func (r *runner) end() {
	if r.host != nil {
		r.host.Kill()
	}
	if r.db != nil {
		_ = r.db.Close()
	}
	r.receiver.Stop()
}

// batchSize is the number of records that the first writer creates at once:
// more than are sent at once, so that rows wait for their claim and for their
// turn.
const batchSize = 100

// write creates records until ctx ends, the first writer many at once. A call
// that fails is no promise.
func (r *runner) write(ctx context.Context, writer int) {
	for n := 0; ctx.Err() == nil; n++ {
		path, size := "account", 1
		var body any = map[string]any{"name": fmt.Sprintf("w%d-%d", writer, n)}
		if writer == 0 {
			batch := make([]map[string]any, batchSize)
			for i := range batch {
				batch[i] = map[string]any{"name": fmt.Sprintf("w%d-%d-%d", writer, n, i)}
			}
			path, size, body = "account/createMany", batchSize, batch
		}
		status, answer, err := r.api.Call(ctx, http.MethodPost, "/data/"+path, body)
		if err != nil || status != http.StatusCreated {
			pause(ctx, 5*time.Millisecond)
			continue
		}
		var created struct {
			ID      string
			Records []struct{ ID string }
		}
		if err := json.Unmarshal(answer, &created); err != nil || size > 1 && len(created.Records) != size {
			continue
		}
		r.mu.Lock()
		if size == 1 {
			r.acked = append(r.acked, created.ID)
		}
		for _, record := range created.Records {
			r.acked = append(r.acked, record.ID)
		}
		r.mu.Unlock()
		r.since.Add(int64(size))
		if size > 1 {
			pause(ctx, 50*time.Millisecond) // else the rows of one writer are all there is
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// killAll kills the host at random moments until enough kills count.
func (r *runner) killAll(ctx context.Context) error {
	for tries := 0; r.report.Kills < r.cfg.Kills; tries++ {
		if tries > 5*r.cfg.Kills+20 {
			return fmt.Errorf("only %d of %d kills hit records on their way", r.report.Kills, tries)
		}
		for r.since.Load() == 0 {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			select {
			case <-r.host.Exited():
				return fmt.Errorf("the host ended by itself: %w\n%s", r.host.Err(), r.host.Output())
			default:
				pause(ctx, time.Millisecond)
			}
		}
		pause(ctx, time.Duration(mathrand.Int64N(int64(120*time.Millisecond))))
		r.host.Kill()
		if err := r.classify(ctx); err != nil {
			return err
		}
		if err := r.startHost(ctx); err != nil {
			return err
		}
	}
	return nil
}

// classify looks at what the kill left behind.
func (r *runner) classify(ctx context.Context) error {
	commits := r.since.Swap(0)
	phases := make(map[string]int)
	var records, deliveries int
	for query, to := range map[string]*int{
		`SELECT COUNT(*) FROM account`: &records, `SELECT COUNT(*) FROM sys_http_delivery`: &deliveries,
	} {
		if err := r.db.Read(ctx).QueryRowContext(ctx, query).Scan(to); err != nil {
			return err
		}
	}
	phases[CommitToMatch] = records - deliveries
	arrived := make(map[string]int)
	for _, a := range r.receiver.All() {
		arrived[a.Delivery]++
	}
	rows, err := r.db.Read(ctx).QueryContext(ctx, `SELECT id, status FROM sys_http_delivery WHERE status IN ('pending', 'in_flight')`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id, status string
		if err := rows.Scan(&id, &status); err != nil {
			return err
		}
		switch {
		case status == "pending":
			phases[MatchToClaim]++
		case arrived[id] > r.arrived[id]: // since the last kill, not before it
			phases[SendToOutcome]++
			r.inFlight[id]++
		default:
			phases[ClaimToSend]++
			r.inFlight[id]++
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	r.arrived = arrived
	if commits == 0 || phases[ClaimToSend]+phases[SendToOutcome] == 0 {
		return nil
	}
	r.report.Kills++
	for phase, n := range phases {
		if n > 0 {
			r.report.Phases[phase]++
		}
	}
	fmt.Fprintf(r.cfg.Log, "kill %d: %d records since the last; on their way: %s %d, %s %d, %s %d, %s %d\n", r.report.Kills, commits,
		CommitToMatch, phases[CommitToMatch], MatchToClaim, phases[MatchToClaim], ClaimToSend, phases[ClaimToSend], SendToOutcome, phases[SendToOutcome])
	return nil
}

// settle waits until every acknowledged record has arrived, or for cfg.Settle.
func (r *runner) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Settle)
	defer cancel()
	for {
		r.mu.Lock()
		missing := r.missing()
		r.mu.Unlock()
		open := -1
		if missing == 0 {
			err := r.db.Read(ctx).QueryRowContext(ctx, `SELECT COUNT(*) FROM sys_http_delivery WHERE status <> 'success'`).Scan(&open)
			if err == nil && open == 0 {
				return
			}
		}
		_, changed := r.receiver.From(0)
		select {
		case <-changed:
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

// missing counts acknowledged records that have not arrived.
func (r *runner) missing() int {
	arrived := make(map[string]bool)
	for _, a := range r.receiver.All() {
		arrived[a.Record] = true
	}
	n := 0
	for _, id := range r.acked {
		if !arrived[id] {
			n++
		}
	}
	return n
}

// judge fills the report.
func (r *runner) judge() {
	r.report.Acknowledged, r.report.Lost = len(r.acked), r.missing()
	type try struct {
		delivery string
		attempt  int
	}
	seen := make(map[try]bool)
	again := make(map[string]int) // repeats of a delivery
	sums := make(map[string]string)
	deliveryOf := make(map[string]string)
	for _, a := range r.receiver.All() {
		r.report.Arrivals++
		if sum, known := sums[a.Delivery]; !a.Verified || a.Record == "" || known && sum != a.Sum {
			r.report.Altered++
		}
		sums[a.Delivery] = a.Sum
		repeated := seen[try{a.Delivery, a.Attempt}]
		seen[try{a.Delivery, a.Attempt}] = true
		if other, known := deliveryOf[a.Record]; known && other != a.Delivery {
			r.report.StrayDuplicates++ // one record, two deliveries
		}
		deliveryOf[a.Record] = a.Delivery
		if !repeated {
			continue
		}
		// Each kill may repeat what was in flight once.
		if again[a.Delivery]++; again[a.Delivery] <= r.inFlight[a.Delivery] {
			r.report.Duplicates++
		} else {
			r.report.StrayDuplicates++
		}
	}
}
