package sqllog

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/storage"
)

// staleAfter is how many sequences an idle position may fall behind before it
// is worth a write of its own.
const staleAfter = 10_000

// postgres is the log in a database with many writers. DESIGN.md explains what
// a position is and why nothing is skipped.
type postgres struct {
	db    *storage.DB
	log   *slog.Logger
	floor floorKeeper
}

// appendSQL takes the xid first: nextval is computed from a row that holds it.
const appendSQL = `WITH me AS MATERIALIZED (SELECT pg_current_xact_id() AS xid)
INSERT INTO sys_event (sequence, xid, partition, id, type, object, record_id, matched,
	changes_json, before_json, after_json, user_id, organization_id, occurred_at, appended_at)
SELECT CASE WHEN me.xid IS NOT NULL THEN nextval('sys_event_sequence') END, me.xid, r.partition, r.id, r.type, r.object,
	r.record_id, r.matched, NULLIF(r.changes, ''), NULLIF(r.before, ''), NULLIF(r.after, ''), r.user_id, r.organization_id, r.at, $12
FROM me CROSS JOIN (
	SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[],
		$9::text[], $10::text[], $11::text[], $13::bigint[]) WITH ORDINALITY
		AS t(partition, id, type, object, record_id, matched, changes, before, after, user_id, organization_id, at, n)
	ORDER BY n) r
RETURNING sequence`

// Append implements [driver.Log].
func (p *postgres) Append(ctx context.Context, events []*event.Event, at int64) error {
	n := len(events)
	var partition, matched, occurred = make([]int64, n), make([]int64, n), make([]int64, n)
	var text [9][]string
	for i := range text {
		text[i] = make([]string, n)
	}
	for i, e := range events {
		partition[i], matched[i], occurred[i] = int64(e.Partition()), e.Matched, e.Timestamp.UnixMilli()
		for c, s := range [9]string{e.ID, e.Type, e.Object, e.RecordID,
			string(e.Changes), string(e.Before), string(e.After), e.UserID, e.OrganizationID} {
			text[c][i] = s
		}
	}
	rows, err := p.db.Write(ctx).QueryContext(ctx, appendSQL, p.db.Hot(partition, text[0], text[1], text[2], text[3], matched,
		text[4], text[5], text[6], text[7], text[8], at, occurred)...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	sequences := make([]int64, 0, n)
	for rows.Next() {
		var s int64
		if err := rows.Scan(&s); err != nil {
			return err
		}
		sequences = append(sequences, s)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if len(sequences) != n {
		return fmt.Errorf("%d of %d events were inserted", len(sequences), n)
	}
	// The numbers were taken in the order of the arguments; RETURNING's own
	// order is not promised.
	slices.Sort(sequences)
	for i, e := range events {
		e.Sequence = sequences[i]
	}
	return nil
}

// view is a snapshot taken now and the sequence's last value, read after it.
type view struct {
	snapshot
	last int64
	// own is the caller's transaction, 0 when it has no xid.
	own uint64
}

// view takes a snapshot. The own transaction counts as open in it.
func (p *postgres) view(ctx context.Context) (view, error) {
	var e end
	if err := p.db.Write(ctx).QueryRowContext(ctx, endSQL, p.db.Hot()...).Scan(&e.seen, &e.own, &e.last); err != nil {
		return view{}, err
	}
	return viewOf(e)
}

const endSQL = `SELECT pg_current_snapshot()::text AS seen, pg_current_xact_id_if_assigned()::text AS own,
	CASE WHEN is_called THEN last_value ELSE 0 END AS last FROM sys_event_sequence`

func (p *postgres) endSQL() string { return endSQL }

func viewOf(e end) (view, error) {
	v := view{last: e.last}
	var err error
	if v.snapshot, err = parseSnapshot(e.seen); err != nil {
		return v, err
	}
	if e.own.Valid {
		if v.own, err = strconv.ParseUint(e.own.String, 10, 64); err != nil {
			return v, err
		}
		v.snapshot = v.without(v.own)
	}
	return v, nil
}

// ahead raises the floor to the end of the log: positions that are read from
// then on have nothing to look through when nothing is added any more. See
// DESIGN.md, "A log at rest".
func (p *postgres) ahead(ctx context.Context, e end) (func(position string) bool, error) {
	v, err := viewOf(e)
	if err != nil {
		return nil, err
	}
	return v.ahead, p.raise(ctx, v.last, 1)
}

// ahead tells whether Read from the position would ask for events.
func (v view) ahead(text string) bool {
	pos, err := parsePosition(text)
	if err != nil || pos.pinned != nil || pos.xmax() > v.xmax || pos.floor != v.last {
		return true
	}
	_, late := pos.late(v.snapshot)
	return late > 0
}

// floorKeeper holds a floor for every snapshot that is taken after the floor
// was loaded. See DESIGN.md, "The floor".
type floorKeeper struct{ floor atomic.Int64 }

// floorLag is how far the kept floor may be behind before it is raised; that
// many rows are looked at for nothing by each read.
const floorLag = 128

// raise makes last, a value of the sequence that was read earlier, the floor.
// Outside of a transaction only: the xid has to be completed before a reader
// loads the floor.
func (p *postgres) raise(ctx context.Context, last, lag int64) error {
	kept := p.floor.floor.Load()
	if last < kept {
		// The sequence went back: the database was replaced by an older copy.
		p.floor.floor.Store(last)
		return nil
	}
	if last-kept < lag || storage.InTransaction(ctx) {
		return nil
	}
	if _, err := p.db.Write(ctx).ExecContext(ctx, `SELECT pg_current_xact_id()`); err != nil {
		return err
	}
	p.floor.floor.CompareAndSwap(kept, last)
	return nil
}

// Position implements [driver.Log].
func (p *postgres) Position(ctx context.Context, start driver.Start) (string, error) {
	if start == driver.Earliest {
		return position{base: nothing}.String(), nil
	}
	v, err := p.view(ctx)
	if err != nil {
		return "", err
	}
	if err := p.raise(ctx, v.last, floorLag); err != nil {
		return "", err
	}
	floor := p.floor.floor.Load()
	if v, err = p.view(ctx); err != nil {
		return "", err
	}
	return position{base: v.snapshot, floor: floor}.String(), nil
}

// Read implements [driver.Log].
func (p *postgres) Read(ctx context.Context, q driver.Query) (driver.Page, error) {
	pos, err := parsePosition(q.Position)
	if err != nil {
		return driver.Page{}, err
	}
	page := driver.Page{}
	floor := p.floor.floor.Load() // before the snapshot
	if pos.pinned != nil {
		if page.Events, err = p.read(ctx, pos, *pos.pinned, q); err != nil {
			return driver.Page{}, err
		}
		mark(&page, q, pos, *pos.pinned)
		if len(page.Events) == q.Limit {
			return full(page, pos, *pos.pinned), nil
		}
		// The delta is read to its end: go on with a new target, and have
		// that saved even when it brings nothing.
		pos, page.Stale = exhausted(*pos.pinned), len(page.Events) == 0
	}
	v, err := p.view(ctx)
	if err != nil {
		return driver.Page{}, err
	}
	if pos.xmax() > v.xmax {
		return driver.Page{}, driver.ErrForeignPosition
	}
	d := delta{target: v.snapshot, floor: max(floor, pos.floor), ceiling: v.last}
	if q.Until != "" {
		until, err := parsePosition(q.Until)
		if err != nil || until.pinned != nil {
			return driver.Page{}, fmt.Errorf("%w: until %q", driver.ErrBadPosition, q.Until)
		}
		d.target, d.floor = until.base, until.floor
	}
	rest := q
	rest.Limit -= len(page.Events)
	more, err := p.read(ctx, pos, d, rest)
	if err != nil {
		return driver.Page{}, err
	}
	page.Events = append(page.Events, more...)
	mark(&page, q, pos, d)
	if len(more) > 0 {
		page.Stale = false
	}
	if len(more) == rest.Limit {
		return full(page, pos, d), p.raise(ctx, v.last, floorLag)
	}
	page.Next = exhausted(d).String()
	if len(page.Events) == 0 && v.last-pos.floor < staleAfter {
		return page, nil
	}
	page.Stale = page.Stale || len(page.Events) == 0 && d.floor-pos.floor >= staleAfter
	return page, p.raise(ctx, v.last, floorLag)
}

// mark adds the positions after the events of d that have none yet.
func mark(page *driver.Page, q driver.Query, pos position, d delta) {
	if !q.Marks {
		return
	}
	for _, e := range page.Events[len(page.Marks):] {
		d.cursor = e.Sequence
		pos.pinned = &d
		page.Marks = append(page.Marks, pos.String())
	}
}

// full completes a page that ends within d.
func full(page driver.Page, pos position, d delta) driver.Page {
	d.cursor = page.Events[len(page.Events)-1].Sequence
	pos.pinned = &d
	page.Next, page.More, page.Stale = pos.String(), true, false
	return page
}

// The two parts of a delta, see DESIGN.md, "Reading". Each reads at most $1
// events of the partitions $2 to $3 with sequences above $4 and up to $5. The
// migration has their text, and why they are functions.
const (
	lateSQL  = `SELECT ` + eventColumns + ` FROM sys_event_late($1, $2, $3, $4, $5, $6::xid8[])`
	freshSQL = `SELECT ` + eventColumns + ` FROM sys_event_fresh($1, $2, $3, $4, $5, $6::pg_snapshot, $7::pg_snapshot)`
)

// read returns events of d, the delta from pos, after d's cursor.
func (p *postgres) read(ctx context.Context, pos position, d delta, q driver.Query) ([]*event.Event, error) {
	var events []*event.Event
	if late, n := pos.late(d.target); n > 0 && d.cursor < pos.floor {
		rows, err := p.db.Write(ctx).QueryContext(ctx, lateSQL, p.db.Hot(q.Limit, q.First, q.Last, d.cursor, pos.floor, late)...)
		if err != nil {
			return nil, err
		}
		if events, err = scanEvents(events, rows); err != nil {
			return nil, err
		}
	}
	after := max(d.cursor, pos.floor)
	if len(events) == q.Limit || after >= d.ceiling {
		return events, nil
	}
	rows, err := p.db.Write(ctx).QueryContext(ctx, freshSQL, p.db.Hot(q.Limit-len(events), q.First, q.Last, after, d.ceiling,
		pos.base.String(), d.target.String())...)
	if err != nil {
		return nil, err
	}
	return scanEvents(events, rows)
}

// Backlog implements [driver.Log]. Events below the cursor of a pinned delta
// that became visible after its target are left out.
func (p *postgres) Backlog(ctx context.Context, q driver.Query) (driver.Backlog, error) {
	pos, err := parsePosition(q.Position)
	if err != nil {
		return driver.Backlog{}, err
	}
	v, err := p.view(ctx)
	if err != nil {
		return driver.Backlog{}, err
	}
	cursor := int64(0)
	if pos.pinned != nil {
		cursor = pos.pinned.cursor
	}
	late, _ := pos.late(v.snapshot)
	var b driver.Backlog
	err = p.db.Read(ctx).QueryRowContext(ctx, `SELECT count(*), COALESCE(min(appended_at), 0) FROM (
		(SELECT e.appended_at FROM unnest($6::xid8[]) AS x(xid) CROSS JOIN LATERAL (
			SELECT appended_at FROM sys_event WHERE (xid, sequence) > (x.xid, $4) AND (xid, sequence) <= (x.xid, $5)
			AND partition BETWEEN $2 AND $3 ORDER BY xid, sequence LIMIT $1) e LIMIT $1)
		UNION ALL
		(SELECT appended_at FROM sys_event WHERE sequence > GREATEST($4, $5) AND partition BETWEEN $2 AND $3
			AND NOT pg_visible_in_snapshot(xid, $7::pg_snapshot) ORDER BY sequence LIMIT $1)
		LIMIT $1) found`, q.Limit, q.First, q.Last, cursor, pos.floor, late, pos.base.String()).Scan(&b.Events, &b.Oldest)
	return b, err
}

// cleanSQL removes of the $1 events after $2 those from before $3 that are in
// the base of every enabled range of their partition. What a range has read of
// a pinned delta waits until the delta is exhausted.
const cleanSQL = `WITH w AS MATERIALIZED (
	SELECT sequence, xid, partition, appended_at FROM sys_event WHERE sequence > $2 ORDER BY sequence LIMIT $1
), gone AS (
	DELETE FROM sys_event e USING w WHERE e.sequence = w.sequence AND w.appended_at < $3 AND NOT EXISTS (
		SELECT 1 FROM sys_event_consumer c WHERE c.enabled AND w.partition BETWEEN c.first_partition AND c.last_partition
		AND NOT pg_visible_in_snapshot(w.xid, split_part(c.position, '@', 1)::pg_snapshot))
	RETURNING 1
)
SELECT (SELECT count(*) FROM gone), count(*), count(*) FILTER (WHERE appended_at < $3), COALESCE(max(sequence), $2) FROM w`

// Clean implements [driver.Log].
func (p *postgres) Clean(ctx context.Context, c driver.Clean) (driver.Cleaned, error) {
	var done driver.Cleaned
	var seen, old int
	err := p.db.Write(ctx).QueryRowContext(ctx, cleanSQL, c.Limit, c.After, c.Before).Scan(&done.Removed, &seen, &old, &done.Last)
	done.Done = seen < c.Limit || old == 0
	return done, err
}

// lockClause also bounds how long the transaction may sit idle: a process that
// is stopped in the middle of a batch would keep the range from the others for
// as long as its connection lives.
func (p *postgres) lockClause() string {
	return " AND " + p.db.BoundedSQL(10*time.Second) + " FOR UPDATE"
}
