package lease

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/objecthost/objecthost/storage"
)

const (
	// drainTime bounds how long the watchers may take to let go of a range.
	drainTime = 5 * time.Second
	// hungry is the time between looks while other processes hold more than
	// their share.
	hungry = 500 * time.Millisecond
)

// member is a process as the database knows it.
type member struct {
	token, process string
	// left is what is left of its lease, in milliseconds.
	left int64
}

// picture is what one renewal shows.
type picture struct {
	renewed bool
	members []member
	owner   [Ranges]string
}

// renewSQL renews the lease and reads who holds what, in one statement.
const renewSQL = `WITH renewed AS (UPDATE sys_node SET lease_until = {now} + $2::bigint WHERE token = $1 RETURNING token)
SELECT 0, token, process, lease_until - {now}, (SELECT COUNT(*) FROM renewed) FROM sys_node
UNION ALL SELECT 1, COALESCE(token, ''), '', range_number, 0 FROM sys_lease`

func (h *Holder) sql(text string) string {
	return strings.NewReplacer("{now}", h.db.NowSQL(), "{bounded}", h.db.BoundedSQL(IdleTransaction)).Replace(text)
}

func (h *Holder) renew(ctx context.Context, token string) (p picture, err error) {
	rows, err := h.db.Write(ctx).QueryContext(ctx, h.sql(renewSQL), h.db.Hot(token, h.cfg.TTL.Milliseconds())...)
	if err != nil {
		return p, fmt.Errorf("renew lease: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var kind, n, renewed int64
		var m member
		if err := rows.Scan(&kind, &m.token, &m.process, &n, &renewed); err != nil {
			return p, err
		}
		if kind == 1 {
			p.owner[n] = m.token
			continue
		}
		p.renewed = renewed > 0
		m.left = n
		p.members = append(p.members, m)
	}
	return p, rows.Err()
}

// tick renews the lease, frees what ended processes held, and moves towards an
// equal share. It returns when to come again.
func (h *Holder) tick(ctx context.Context) (time.Duration, error) {
	pause := h.cfg.TTL / 3
	ctx, cancel := context.WithTimeout(ctx, h.cfg.TTL)
	defer cancel()
	token := h.token()
	began := time.Now()
	var p picture
	var err error
	if token != "" {
		if p, err = h.renew(ctx, token); err != nil {
			return pause, err
		}
	}
	if !p.renewed {
		// New here, or others took this process for dead: what it held is gone.
		h.lose("")
		if token, err = h.join(ctx); err != nil {
			return pause, err
		}
		began = time.Now()
		if p, err = h.renew(ctx, token); err != nil {
			return pause, err
		}
	}
	if freed, err := h.bury(ctx, p.members); err != nil {
		return pause, err
	} else if freed {
		began = time.Now()
		if p, err = h.renew(ctx, token); err != nil {
			return pause, err
		}
	}
	// The lease began in the database not before it was asked for here.
	h.mu.Lock()
	h.until = began.Add(h.cfg.TTL)
	h.mu.Unlock()
	short, err := h.balance(ctx, token, p)
	if short {
		pause = min(pause, hungry)
	}
	for _, m := range p.members {
		if m.token != token {
			pause = min(pause, max(time.Duration(m.left+1)*time.Millisecond, hungry/10))
		}
	}
	return pause, err
}

// join registers the process under a new token.
func (h *Holder) join(ctx context.Context) (string, error) {
	token := newToken()
	_, err := h.db.Write(ctx).ExecContext(ctx, h.sql(`INSERT INTO sys_node (token, name, process, lease_until, started_at)
		VALUES ($1, $2, $3, {now} + $4::bigint, {now})`), token, h.cfg.Node, self(), h.cfg.TTL.Milliseconds())
	if err != nil {
		return "", fmt.Errorf("register node: %w", err)
	}
	h.hold(ctx, Held{Token: token})
	return token, nil
}

// bury removes the processes whose lease has ended, or that are known to have,
// and frees their ranges.
func (h *Holder) bury(ctx context.Context, members []member) (freed bool, err error) {
	var over, dead []string
	for _, m := range members {
		switch {
		case m.left <= 0:
			over = append(over, m.token)
		case ended(m.process):
			dead = append(dead, m.token)
		}
	}
	if len(over)+len(dead) == 0 {
		return false, nil
	}
	err = h.db.InTx(ctx, func(ctx context.Context) error {
		freed = false
		// A lease that is renewed at this moment is looked at again once its
		// row is free, and stays.
		rows, err := h.db.Write(ctx).QueryContext(ctx, h.sql(`DELETE FROM sys_node WHERE {bounded} AND
			(token = ANY ($1::text[]) AND lease_until <= {now} OR token = ANY ($2::text[])) RETURNING token`), over, dead)
		if err != nil {
			return err
		}
		var gone []string
		for rows.Next() {
			var token string
			if err := rows.Scan(&token); err != nil {
				_ = rows.Close()
				return err
			}
			gone = append(gone, token)
		}
		if err := rows.Close(); err != nil {
			return err
		}
		if err := rows.Err(); err != nil || len(gone) == 0 {
			return err
		}
		freed = true
		_, err = h.db.Write(ctx).ExecContext(ctx, `UPDATE sys_lease SET token = NULL WHERE token = ANY ($1::text[])`, gone)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("free the ranges of ended nodes: %w", err)
	}
	return freed, nil
}

// balance gives up what is above this process's share and takes what is free
// below it. short tells that it still has less than its share.
func (h *Holder) balance(ctx context.Context, token string, p picture) (short bool, err error) {
	var held, free Set
	for r, owner := range p.owner {
		switch owner {
		case token:
			held |= 1 << r
		case "":
			free |= 1 << r
		}
	}
	quota := share(token, p.members)
	switch n := held.Len() - quota; {
	case n > 0:
		return false, h.release(ctx, token, held, held.last(n))
	case n < 0 && free != 0:
		taken, err := h.take(ctx, token, -n)
		if err != nil {
			return true, err
		}
		held |= taken
	}
	h.hold(ctx, Held{Ranges: held, Token: token})
	return held.Len() < quota, nil
}

// share is the number of ranges that a process should hold: all are spread
// evenly, what is left over goes to the first in the order of their tokens.
func share(token string, members []member) int {
	var live []string
	for _, m := range members {
		live = append(live, m.token)
	}
	slices.Sort(live)
	i, found := slices.BinarySearch(live, token)
	if !found {
		return 0
	}
	n := Ranges / len(live)
	if i < Ranges%len(live) {
		n++
	}
	return n
}

// release lets the watchers finish with ranges, and frees them.
func (h *Holder) release(ctx context.Context, token string, held, give Set) error {
	drain, cancel := context.WithTimeout(ctx, min(drainTime, h.cfg.TTL/3))
	h.hold(drain, Held{Ranges: held &^ give, Token: token})
	cancel()
	_, err := h.db.Write(ctx).ExecContext(ctx, `UPDATE sys_lease SET token = NULL WHERE token = $1 AND range_number = ANY ($2::bigint[])`,
		token, give.numbers())
	if err != nil {
		return fmt.Errorf("give up ranges: %w", err)
	}
	return nil
}

// take takes up to n free ranges, as long as this process's own lease lives.
func (h *Holder) take(ctx context.Context, token string, n int) (taken Set, err error) {
	err = h.db.InTx(ctx, func(ctx context.Context) error {
		taken = 0
		rows, err := h.db.Write(ctx).QueryContext(ctx, h.sql(`UPDATE sys_lease SET token = $1
			WHERE range_number = ANY (ARRAY(SELECT range_number FROM sys_lease WHERE token IS NULL ORDER BY range_number LIMIT $2 FOR UPDATE SKIP LOCKED))
				AND token IS NULL AND {bounded}
				AND EXISTS (SELECT 1 FROM sys_node WHERE token = $1 AND lease_until > {now} FOR KEY SHARE)
			RETURNING range_number`), token, n)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var r int
			if err := rows.Scan(&r); err != nil {
				return err
			}
			taken |= 1 << r
		}
		return rows.Err()
	})
	if err != nil {
		return 0, fmt.Errorf("take free ranges: %w", err)
	}
	return taken, nil
}

// leave frees everything that a token holds and removes it.
func (h *Holder) leave(ctx context.Context, token string) error {
	err := h.db.InTx(ctx, func(ctx context.Context) error {
		if _, err := h.db.Write(ctx).ExecContext(ctx, h.sql(`DELETE FROM sys_node WHERE token = $1 AND {bounded}`), token); err != nil {
			return err
		}
		_, err := h.db.Write(ctx).ExecContext(ctx, `UPDATE sys_lease SET token = NULL WHERE token = $1`, token)
		return err
	})
	if err != nil && !storage.IsTransient(err) {
		return fmt.Errorf("give up the lease: %w", err)
	}
	return nil // a lease that can't be given up ends by itself
}
