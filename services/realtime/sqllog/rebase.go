package sqllog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/objecthost/objecthost/services/realtime/driver"
)

// lockColumn is the xmax of the snapshot that the statement began with.
func (p *postgres) lockColumn() string { return ", pg_snapshot_xmax(pg_current_snapshot())::text" }

// verify implements dialect. A position beyond the statement's own snapshot is
// suspicious only: its writer may have committed while the statement waited for
// the row. A snapshot taken now tells.
func (p *postgres) verify(ctx context.Context, r driver.Range, xmax string) (driver.Range, error) {
	pos, err := parsePosition(r.Position)
	if err != nil {
		return r, err
	}
	began, err := strconv.ParseUint(xmax, 10, 64)
	if err != nil || pos.xmax() <= began {
		return r, err
	}
	v, err := p.view(ctx)
	if err != nil || pos.xmax() <= v.xmax {
		return r, err
	}
	if err := p.rebase(ctx); err != nil {
		return r, fmt.Errorf("rebase positions: %w", err)
	}
	err = p.db.Write(ctx).QueryRowContext(ctx, `SELECT position FROM sys_event_consumer
		WHERE name = $1 AND first_partition = $2`, r.Consumer, r.First).Scan(&r.Position)
	return r, err
}

// Verify implements [driver.Log]: a row that we see although its xid is not
// below the snapshot's xmax, and not our own, was written in another cluster.
// The positions may be older and look fine.
func (p *postgres) Verify(ctx context.Context) error {
	var foreign bool
	err := p.db.Write(ctx).QueryRowContext(ctx, `SELECT xid >= pg_snapshot_xmax(pg_current_snapshot())
		AND xid IS DISTINCT FROM pg_current_xact_id_if_assigned()
		FROM sys_event ORDER BY xid DESC LIMIT 1`).Scan(&foreign)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !foreign {
		return nil
	}
	if err != nil {
		return err
	}
	return p.db.InTx(ctx, func(ctx context.Context) error {
		if err := p.rebase(ctx); err != nil {
			return fmt.Errorf("rebase positions: %w", err)
		}
		return nil
	})
}

// rebase makes all positions, and the rows they are compared with, independent
// of the xids of the cluster that the database was restored from. See
// DESIGN.md, "Restored databases".
func (p *postgres) rebase(ctx context.Context) error {
	q := p.db.Write(ctx)
	p.floor.floor.Store(0)
	// Keeps writers out until the end of the transaction: every row that is
	// there is committed, or our own.
	if _, err := q.ExecContext(ctx, `LOCK TABLE sys_event IN SHARE ROW EXCLUSIVE MODE`); err != nil {
		return err
	}
	rows, err := q.QueryContext(ctx, `SELECT `+rangeColumns+` FROM sys_event_consumer ORDER BY name, first_partition FOR UPDATE`)
	if err != nil {
		return err
	}
	ranges, err := scanRanges(rows)
	if err != nil {
		return err
	}
	for _, r := range ranges {
		floor, err := p.unhandled(ctx, r.Position)
		if err != nil {
			return err
		}
		position := position{base: nothing, floor: floor}.String()
		if _, err := q.ExecContext(ctx, `UPDATE sys_event_consumer SET position = $3 WHERE name = $1 AND first_partition = $2`,
			r.Consumer, r.First, position); err != nil {
			return err
		}
		p.log.WarnContext(ctx, "event position is of another database cluster, consumer goes on by sequence",
			slog.String("consumer", r.Consumer), slog.Int("first_partition", r.First), slog.Int64("after_sequence", floor))
	}
	v, err := p.view(ctx)
	if err != nil {
		return err
	}
	if _, err := q.ExecContext(ctx, `UPDATE sys_event SET xid = '3'
		WHERE xid >= $1::xid8 AND xid IS DISTINCT FROM pg_current_xact_id_if_assigned()`, strconv.FormatUint(v.xmin, 10)); err != nil {
		return err
	}
	// A copy made by logical replication has the rows but not the sequence.
	_, err = q.ExecContext(ctx, `SELECT setval('sys_event_sequence', m) FROM (SELECT max(sequence) AS m FROM sys_event) e
		WHERE m > (SELECT last_value FROM sys_event_sequence)`)
	return err
}

// unhandled returns a sequence below every event that is after the position.
func (p *postgres) unhandled(ctx context.Context, text string) (int64, error) {
	pos, err := parsePosition(text)
	if err != nil {
		return 0, err
	}
	// After a position are events above its floor, and those of transactions
	// that were open. Of a pinned delta the events up to the cursor are done,
	// but not those that its target did not see.
	after, open := pos.floor, pos.base.xip
	if d := pos.pinned; d != nil {
		after, open = min(d.cursor, d.floor), d.target.xip
	}
	array, n := position{base: snapshot{xip: open}}.late(snapshot{xmax: ^uint64(0)})
	if n == 0 {
		return after, nil
	}
	var first sql.NullInt64
	err = p.db.Write(ctx).QueryRowContext(ctx, `SELECT min(sequence) FROM sys_event WHERE xid = ANY($1::xid8[])`, array).Scan(&first)
	if err == nil && first.Valid {
		after = min(after, first.Int64-1)
	}
	return after, err
}
