package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/objecthost/objecthost/e2e/receiver"
	"github.com/objecthost/objecthost/storage/lease"
)

// row is what the database knows of a delivery.
type row struct {
	status            string
	partition, target int64
	attempts          map[int]attempt
}

// attempt is one that was recorded.
type attempt struct {
	node     int
	answered bool
}

// deliveries reads all rows and their attempts.
func (r *runner) deliveries(ctx context.Context) (map[string]*row, error) {
	all := make(map[string]*row)
	rows, err := r.db.Read(ctx).QueryContext(ctx, `SELECT d.id, d.status, d.partition_key, d.target_id, COALESCE(a.attempt, 0), COALESCE(a.node, ''), a.response_code IS NOT NULL
		FROM sys_http_delivery d LEFT JOIN sys_http_attempt a ON a.delivery_id = d.id`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id, name string
		var number int
		var one row
		var a attempt
		if err := rows.Scan(&id, &one.status, &one.partition, &one.target, &number, &name, &a.answered); err != nil {
			return nil, err
		}
		if all[id] == nil {
			one.attempts = make(map[int]attempt)
			all[id] = &one
		}
		if number > 0 {
			a.node = r.names[name]
			all[id].attempts[number] = a
		}
	}
	return all, rows.Err()
}

// judge looks at all that came since the begin.
func (r *runner) judge(ctx context.Context) error {
	rows, err := r.deliveries(ctx)
	if err != nil {
		return err
	}
	r.report = r.decide(rows, r.receiver.All())
	if r.report.Lost > 0 {
		return r.explain(ctx)
	}
	return nil
}

// explain adds to the report where the deliveries are that did not come.
func (r *runner) explain(ctx context.Context) error {
	rows, err := r.db.Read(ctx).QueryContext(ctx, `SELECT 'delivery ' || json_build_object('id', id, 'url', url, 'status', status, 'partition', partition_key,
			'target', target_id, 'attempts', attempts, 'next_retry_at', next_retry_at, 'claimed_by', claimed_by, 'claim_expires_at', claim_expires_at,
			'created_at', created_at, 'updated_at', updated_at, 'error', error) FROM sys_http_delivery WHERE status <> 'success'
		UNION ALL SELECT 'node ' || json_build_object('name', name, 'lease_until', lease_until, 'ranges', (SELECT json_agg(range_number) FROM sys_lease l WHERE l.token = n.token)) FROM sys_node n
		UNION ALL SELECT 'consumer ' || row_to_json(c) FROM sys_event_consumer c
		UNION ALL SELECT 'now ' || (extract(epoch FROM clock_timestamp()) * 1000)::bigint`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return err
		}
		r.report.Details = append(r.report.Details, line)
	}
	r.report.Details = append(r.report.Details, r.outputs())
	return rows.Err()
}

// decide compares what arrived with what was promised.
func (r *runner) decide(rows map[string]*row, arrivals []receiver.Arrival) *Report {
	j := &judge{r: r, rows: rows, report: newReport()}
	for _, c := range r.writers.all() {
		if c.acknowledged {
			j.report.Acknowledged++
		}
	}
	j.report.Arrivals = len(arrivals)
	for _, missing := range r.missing(arrivals) {
		j.report.Lost++
		j.report.blame("lost: %s", missing)
	}
	j.contents(arrivals)
	j.repeats(arrivals)
	for i := range hooks {
		j.order(&hooks[i], arrivals)
		j.limits(&hooks[i], arrivals)
	}
	for _, f := range r.faults {
		j.takeover(f, arrivals)
	}
	return j.report
}

// judge makes a report.
type judge struct {
	r      *runner
	rows   map[string]*row
	report *Report
}

// contents: every request is signed, has the bytes of its first try, and is of
// a change that was made; one change is one delivery for a webhook.
func (j *judge) contents(arrivals []receiver.Arrival) {
	changes := j.r.writers.all()
	sums, deliveryOf := make(map[string]string), make(map[string]string)
	for _, a := range arrivals {
		c, known := changes[a.Mark]
		sum, again := sums[a.Delivery]
		if !a.Verified || !known || c.action != a.Action || again && sum != a.Sum {
			j.report.Altered++
			j.report.blame("altered: %+v", a)
		}
		sums[a.Delivery] = a.Sum
		key := a.Path + " " + a.Mark
		if other, known := deliveryOf[key]; known && other != a.Delivery {
			j.report.Stray++
			j.report.blame("two deliveries of %s: %s and %s", key, other, a.Delivery)
		}
		deliveryOf[key] = a.Delivery
	}
}

// repeats: an attempt comes twice only when its first request was of a node
// that a fault hit while the row was in flight there, once for each fault; and
// nothing comes after an attempt that was answered with success, but for the
// same reason.
func (j *judge) repeats(arrivals []receiver.Arrival) {
	before := make(map[string][]receiver.Arrival)
	for _, a := range arrivals {
		earlier := before[a.Delivery]
		before[a.Delivery] = append(earlier, a)
		for i, e := range earlier {
			again := e.Attempt == a.Attempt
			if !again && (e.Status != 200 || j.unheard(e)) {
				continue // it failed, as far as its sender knows
			}
			switch f := j.excuse(e, i, earlier, again); {
			case f == nil:
				j.report.Stray++
				j.report.blame("%s attempt %d of host %d came after attempt %d of host %d, %s and %s: status %d",
					a.Delivery, a.Attempt, a.Node, e.Attempt, e.Node, clock(e.At), clock(a.At), e.Status)
			case again && e.At.After(f.start.Add(jitter)):
				j.report.Queued++
			case again:
				j.report.Duplicates++
			}
		}
	}
}

// excuse is the fault that hit a request's node while its row was in flight
// there, nil for none. A request whose node is not known any more, because it
// was killed at once, may be anyone's. Each fault excuses one repeat: the
// earlier ones of the same attempt have used theirs up.
func (j *judge) excuse(e receiver.Arrival, i int, earlier []receiver.Arrival, again bool) *fault {
	used := 0
	for _, other := range earlier[i+1:] {
		if again && other.Attempt == e.Attempt {
			used++
		}
	}
	for _, f := range j.r.faults {
		c, claimed := f.claims[e.Delivery]
		if claimed && (e.Node == c.node || e.Node < 0) && e.At.Before(f.healed) {
			if used == 0 {
				return f
			}
			used--
		}
	}
	return nil
}

// unheard tells that the sender did not get an answer that was given: its
// attempt is recorded so.
func (j *judge) unheard(e receiver.Arrival) bool {
	row := j.rows[e.Delivery]
	if row == nil {
		return false
	}
	a, recorded := row.attempts[e.Attempt]
	return recorded && !a.answered && a.node == e.Node
}

// order: first attempts of one key leave in the order of their events, where
// the webhook blocks all attempts do. Between records there is an order only of
// changes that were acknowledged one after the other.
func (j *judge) order(h *hook, arrivals []receiver.Arrival) {
	changes := j.r.writers.all()
	last := make(map[string]receiver.Arrival)
	tried := make(map[string]bool)
	for _, a := range arrivals {
		if a.Path != h.path || !h.ordered || h.serial && !changes[a.Mark].acknowledged {
			continue
		}
		first := a.Attempt == 1 && !tried[a.Delivery]
		tried[a.Delivery] = true
		if !first && !h.blocking {
			continue
		}
		key := a.Record
		if h.serial {
			key = ""
		}
		if was, known := last[key]; known && a.Sequence < was.Sequence {
			j.report.Disordered++
			j.report.blame("%s: event %d (host %d, %s) came after event %d (host %d, %s)",
				h.path, a.Sequence, a.Node, clock(a.At), was.Sequence, was.Node, clock(was.At))
		}
		last[key] = a
	}
}

// jitter is how much the times of arrival may be off on a busy machine.
const jitter = time.Second

// limits: the cap holds for the nodes together. So does the rate: a leaky bucket
// that empties at the rate never holds more than the burst. A node that takes
// the webhook over begins with a burst of its own.
func (j *judge) limits(h *hook, arrivals []receiver.Arrival) {
	level, allowed := 0.0, h.burst+h.perSecond*jitter.Seconds()
	var was receiver.Arrival
	for _, a := range arrivals {
		if a.Path != h.path {
			continue
		}
		if h.most > 0 && a.Open > h.most {
			j.report.OverLimit++
			j.report.blame("%s: %d requests at once (%s)", h.path, a.Open, clock(a.At))
		}
		if h.perSecond == 0 {
			continue
		}
		if was.Delivery != "" {
			level -= h.perSecond * a.At.Sub(was.At).Seconds()
			if was.Node != a.Node {
				level -= h.burst
			}
		}
		if level = max(0, level) + 1; level > allowed {
			j.report.OverLimit++
			j.report.blame("%s: %.1f requests above the rate (%s)", h.path, level-h.burst, clock(a.At))
			level = allowed
		}
		was = a
	}
}

// takeover tells how others went on with what a node held.
type takeover struct {
	// all are the ranges in which others delivered what was waiting, first and
	// last the times from the fault to the first such delivery of the first and
	// of the last of these ranges.
	all         lease.Set
	first, last time.Duration
	// inFlight counts rows that were sent again, early those of them before
	// their claim's end; late is the longest time after it.
	inFlight, early int
	late            time.Duration
}

// takeover measures one.
func (f *fault) takeover(rows map[string]*row, arrivals []receiver.Arrival) (t takeover) {
	repeated := make(map[string]bool)
	for _, a := range arrivals {
		row := rows[a.Delivery]
		if a.At.Before(f.start) || row == nil || !f.healed.IsZero() && a.At.After(f.healed) {
			continue
		}
		c, inFlight := f.claims[a.Delivery]
		switch {
		case f.node < 0 || a.Node == f.node:
		case inFlight && !repeated[a.Delivery]:
			repeated[a.Delivery] = true
			t.inFlight++
			if a.At.Before(c.end) {
				t.early++
			}
			t.late = max(t.late, a.At.Sub(c.end))
		case !inFlight:
			served := rangeOf(a.Path, row)
			if f.ranges.HasRange(served) && !t.all.HasRange(served) {
				t.all |= 1 << served
				if t.last = a.At.Sub(f.start); t.first == 0 {
					t.first = t.last
				}
			}
		}
	}
	return t
}

// rangeOf is the range that a delivery is served by.
func rangeOf(path string, row *row) int {
	for _, h := range hooks {
		if h.path == path && h.home {
			return int(row.target % lease.Ranges)
		}
	}
	return lease.RangeOf(int(row.partition))
}

// pollInterval is how often a host looks without being woken: rows in flight
// come no later than that after their claims' end.
const pollInterval = 5 * time.Second

// takeover: waiting rows of every range go on within a lease, rows in flight
// when their claims have ended, and not before.
func (j *judge) takeover(f *fault, arrivals []receiver.Arrival) {
	j.report.Faults[f.kind]++
	if f.node < 0 {
		return
	}
	t := f.takeover(j.rows, arrivals)
	j.report.Takeovers[f.kind] = append(j.report.Takeovers[f.kind], t.last)
	if t.all != f.ranges || t.last > leaseTTL+j.r.cfg.Grace {
		j.report.Late++
		j.report.blame("%s of host %d at %s: %d of %d ranges taken over, the last after %s",
			f.kind, f.node, clock(f.start), t.all.Len(), f.ranges.Len(), t.last)
	}
	j.report.InFlightLate = max(j.report.InFlightLate, t.late)
	if t.late > max(j.r.cfg.Grace, pollInterval) {
		j.report.Late++
		j.report.blame("%s of host %d at %s: a row in flight was sent again %s after its claim had ended", f.kind, f.node, clock(f.start), t.late)
	}
	if t.early > 0 {
		j.report.Stray += t.early
		j.report.blame("%s of host %d at %s: %d rows were sent again before their claims had ended", f.kind, f.node, clock(f.start), t.early)
	}
}

// describe is a fault as one line.
func (r *runner) describe(f *fault) string {
	ms := func(d time.Duration) string { return d.Round(time.Millisecond).String() }
	if f.node < 0 {
		next := time.Duration(0)
		for _, a := range r.receiver.All() {
			if a.At.After(f.healed) {
				next = a.At.Sub(f.start)
				break
			}
		}
		return fmt.Sprintf("%s: the database was back after %s, deliveries went on after %s; %d rows were in flight", f.kind, ms(f.healed.Sub(f.start)), ms(next), len(f.claims))
	}
	rows, err := r.deliveries(context.Background())
	if err != nil {
		return fmt.Sprintf("%s: %v", f.kind, err)
	}
	t := f.takeover(rows, r.receiver.All())
	return fmt.Sprintf("%s of host %d: %d ranges taken over, first delivery after %s, in the last range after %s; %d rows were in flight, %d sent again, at most %s after their claims' end",
		f.kind, f.node, t.all.Len(), ms(t.first), ms(t.last), len(f.claims), t.inFlight, ms(max(0, t.late)))
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }
