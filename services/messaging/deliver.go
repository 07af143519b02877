package messaging

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"time"

	"github.com/objecthost/objecthost/services/messaging/driver"
)

// worker sends jobs until the dispatcher stops.
func (d *dispatcher) worker() {
	defer d.wg.Done()
	for j := range d.work {
		it := d.deliver(j)
		// A row that was not sent, or that blocks, takes those behind it along.
		blocked := it.outcome.Released || j.row.BlockOnRetry && it.outcome.Status == StatusPending
		if it.outcome.Released {
			d.mu.Lock()
			d.release(j)
			d.mu.Unlock()
		}
		d.rec.add(it)
		d.mu.Lock()
		d.learn(j, &it)
		giveBack := d.finished(j, blocked)
		surplus := d.workers > d.cfg.MaxInFlight && d.workers > d.outstanding
		if surplus {
			d.workers--
		}
		d.pump()
		d.mu.Unlock()
		d.giveBack(giveBack)
		if surplus {
			return
		}
	}
}

// deliver makes one attempt and decides what it means.
func (d *dispatcher) deliver(j *job) item {
	r := j.row
	release := released(j)
	d.mu.Lock()
	cfg, stale := j.target.cfg, j.target.stale
	d.mu.Unlock()
	if stale || cfg.row.State != TargetActive || !time.Now().Before(j.sendBy) || d.sendCtx.Err() != nil {
		return release
	}
	if r.CrashCount >= quarantineAt && !d.markAlone(r) {
		return release
	}
	if r.Expired {
		return d.settle(j, cfg, nil, Input{Now: j.started, ExpiresAt: j.started})
	}
	out, reason := d.outgoing(r, cfg)
	if reason != "" {
		return d.settle(j, cfg, nil, Input{ParkReason: reason})
	}
	if r.PayloadSize > len(r.Payload) {
		body, free, err := d.loadPayload(j)
		if err != nil {
			d.log.Warn("read payload", "delivery_id", r.ID, "error", err)
			return release
		}
		defer free()
		out.Body = body
	}
	// The request's time ends before the claim, also for a process that was
	// stopped since the check above and would begin it only now.
	out.Before = j.sendBy.Add(timeoutOf(out))
	return d.settle(j, cfg, d.s.sender.Send(d.sendCtx, out), Input{})
}

// markAlone notes that a row is being sent alone, so that a crash now is its
// own.
func (d *dispatcher) markAlone(r *driver.Row) bool {
	ctx, cancel := context.WithTimeout(d.sendCtx, d.cfg.QueueWait)
	defer cancel()
	_, applied, err := d.cfg.Store.Edit(ctx, driver.Edit{ID: r.ID, From: []Status{StatusInFlight}, Alone: true})
	if err != nil {
		d.log.Warn("mark delivery as sent alone", "delivery_id", r.ID, "error", err)
	}
	return err == nil && applied
}

// outgoing unseals what the request needs. A reason means that the row cannot
// be sent as it should be, and must not be sent otherwise.
func (d *dispatcher) outgoing(r *driver.Row, cfg *targetConfig) (out *Outgoing, reason string) {
	out = &Outgoing{
		ID: r.ID, URL: r.URL, Method: r.Method, Label: r.Label, Body: r.Payload,
		Timeout: time.Duration(r.TimeoutMillis) * time.Millisecond, Attempt: max(0, min(r.Attempts, 1<<30)) + 1,
		SignatureScheme: cfg.Signature, Auth: cfg.Auth,
	}
	if r.SecretSealed != "" {
		secret, err := d.s.open(r.SecretSealed, aadSecret)
		if err != nil {
			return nil, "signing secret is set but cannot be read"
		}
		out.Secret = secret
	} else {
		if cfg.Unreadable != "" {
			return nil, cfg.Unreadable
		}
		out.Secret = cfg.Secret
		if time.Now().Before(cfg.PreviousUntil) {
			out.PreviousSecret = cfg.PreviousSecret
		}
	}
	if r.HeadersSealed != "" {
		headers, err := cfg.openHeaders(d.s, r.HeadersSealed)
		if err != nil {
			return nil, "headers are set but cannot be read"
		}
		out.Headers = headers
	}
	return out, ""
}

// openHeaders unseals headers; rows of one webhook share their sealed text, so
// that it is opened once.
func (c *targetConfig) openHeaders(s *Service, sealed string) (map[string]string, error) {
	if h, ok := c.headers.Load(sealed); ok {
		return h.(map[string]string), nil
	}
	plain, err := s.open(sealed, aadHeaders)
	if err != nil {
		return nil, err
	}
	var headers map[string]string
	if err := json.Unmarshal(plain, &headers); err != nil {
		return nil, fmt.Errorf("headers are no JSON map of strings")
	}
	if c.cached.Add(1) <= maxCachedHeaders {
		c.headers.Store(sealed, headers)
	}
	return headers, nil
}

// maxCachedHeaders bounds the header sets that a target's snapshot remembers.
const maxCachedHeaders = 16

// loadPayload reads a payload that was too big to be claimed with its row. It
// fails when that takes so long that the request could outlast its claim.
func (d *dispatcher) loadPayload(j *job) (body []byte, free func(), err error) {
	size := min(int64(j.row.PayloadSize), int64(d.cfg.PayloadMemory))
	ctx, cancel := context.WithDeadline(d.sendCtx, j.sendBy.Add(d.cfg.ClaimMargin/2))
	defer cancel()
	if err := d.payloadSem.Acquire(ctx, size); err != nil {
		return nil, nil, err
	}
	free = func() { d.payloadSem.Release(size) }
	row, err := d.cfg.Store.Get(ctx, j.row.ID)
	if err == nil && row == nil {
		err = ErrNotFound
	}
	if err != nil {
		free()
		return nil, nil, err
	}
	return row.Payload, free, nil
}

// settle turns an attempt into the outcome to record.
func (d *dispatcher) settle(j *job, cfg *targetConfig, a *Attempt, in Input) item {
	r := j.row
	in.Attempt, in.AttemptsDone, in.Policy = a, r.Attempts, cfg.Retry
	in.Jitter, in.Source = rand.Float64(), r.Source //nolint:gosec // spreads load, guards nothing
	decision := Decide(in)
	it := item{job: j, attempt: a, decision: decision}
	o := &it.outcome
	*o = driver.Outcome{ID: r.ID, Token: r.ClaimToken, Attempts: r.Attempts, Error: decision.Error, Parked: in.ParkReason != ""}
	switch decision.Outcome {
	case OutcomeSuccess:
		o.Status = StatusSuccess
	case OutcomeRetry:
		o.Status, o.RetryIn = StatusPending, decision.NextDelay
	case OutcomeDead:
		o.Status = StatusDead
	case OutcomeFailed:
		o.Status = StatusFailed
	case OutcomeRelease:
		o.Status, o.Released = StatusPending, true
		return it
	}
	if a == nil {
		return it
	}
	o.Signature = a.Signature
	if decision.SpendAttempt {
		o.Attempts++
		o.Attempt = d.attemptRow(j, a, o.Attempts)
	}
	o.ResponseCode, o.ResponseBody, o.ResponseTruncated = a.StatusCode, a.ResponseBody, a.ResponseTruncated
	return it
}

func (d *dispatcher) attemptRow(j *job, a *Attempt, n int) *driver.Attempt {
	r := j.row
	return &driver.Attempt{
		// Not a.Started: the sender's clock may be another one than the clock
		// that the attempt's age is measured with.
		DeliveryID: r.ID, Round: r.Round, Attempt: n, Node: d.cfg.Node, Began: j.started,
		Duration: a.Duration, DNS: a.DNS, Connect: a.Connect, TLS: a.TLS, FirstByte: a.FirstByte,
		RemoteAddr: a.RemoteAddr, RequestHeaders: headersJSON(a.RequestHeaders),
		ResponseCode: a.StatusCode, ResponseHeaders: headersJSON(a.ResponseHeaders),
		ResponseBody: a.ResponseBody, Truncated: a.ResponseTruncated, LocationHost: a.LocationHost,
		ErrorClass: string(a.Class), Error: a.Error, OrganizationID: r.OrganizationID,
	}
}

func headersJSON(h map[string][]string) string {
	if len(h) == 0 {
		return ""
	}
	names := make([]string, 0, 16)
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	text := make([]byte, 0, 1024) // on the stack
	for i, name := range names {
		text = append(text, "{,"[min(i, 1)])
		text = append(appendJSON(text, name), ':', '[')
		for k, value := range h[name] {
			if k > 0 {
				text = append(text, ',')
			}
			text = appendJSON(text, value)
		}
		text = append(text, ']')
	}
	return string(append(text, '}'))
}

// appendJSON appends a text as JSON. Headers are written for every attempt, and
// nearly all are plain.
func appendJSON(to []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, err := json.Marshal(s)
			if err != nil { // a text always encodes
				return append(to, `""`...)
			}
			return append(to, quoted...)
		}
	}
	to = append(append(to, '"'), s...)
	return append(to, '"')
}

// learn adjusts the target's limits to what the attempt showed. d.mu is held.
func (d *dispatcher) learn(j *job, it *item) {
	t, a := j.target, it.attempt
	if a == nil || it.outcome.Released || !a.Sent {
		return
	}
	now := time.Now()
	if it.decision.SwitchOffTarget {
		t.off = true
	}
	answered := a.StatusCode != 0 && a.StatusCode < 500 && a.StatusCode != 408 && a.StatusCode != 429
	if answered {
		t.limiter.succeeded()
		return
	}
	refused := a.StatusCode == 429 || a.StatusCode == 503
	if refused {
		t.limiter.refused(j.started, now)
	}
	open, pause := t.limiter.failed(j.started, now, refused || a.StatusCode == 408 || a.StatusCode == 0)
	if a.RetryAfter > 0 {
		t.pausedTil = now.Add(min(a.RetryAfter, maxTargetPause))
		open = true
	}
	if open {
		d.log.Warn("target pauses", "source", j.row.Source, "target", j.row.TargetKey,
			"pause", max(pause, time.Until(t.pausedTil)), "failures", t.limiter.failures)
		go d.giveBackQueued(t)
	}
}

// giveBackQueued returns the claimed rows of a target that pauses, so that
// their claims do not end while they wait.
func (d *dispatcher) giveBackQueued(t *target) {
	d.mu.Lock()
	jobs := d.takeQueued(func(j *job) bool { return j.target == t })
	if len(jobs) > 0 && !d.stopping {
		d.markReady(t)
	}
	d.mu.Unlock()
	d.giveBack(jobs)
}

// hostOf is the host and port of a URL, as far as sharing slots goes.
func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return raw
	}
	return u.Host
}
