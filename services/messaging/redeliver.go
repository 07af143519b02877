package messaging

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/storage"
)

// Endpoint is where a delivery goes: what a row keeps from its enqueueing.
type Endpoint struct {
	URL, Method string
	Headers     map[string]string
	Timeout     time.Duration
}

// RedeliverOptions adjusts [Service.Redeliver].
type RedeliverOptions struct {
	// Current replaces the row's endpoint: the webhook moved.
	Current *Endpoint
	// Headers, for a parked row, are its headers read anew.
	Headers map[string]string
	// Scoped restricts the call to rows of OrganizationID; a foreign row is
	// not found.
	Scoped         bool
	OrganizationID string
}

// Redeliver puts a delivery that has ended back to pending: same bytes, same
// id, attempts from 0, no expiry. It joins the transaction of ctx.
//
// It returns [ErrNotFound], a *[NotEligibleError] for a delivery that waits or
// is in flight or whose target is gone, and [ErrNeverSent] for a parked one
// that still cannot be signed or has unreadable headers.
func (s *Service) Redeliver(ctx context.Context, id string, opts RedeliverOptions) (Delivery, error) {
	var out Delivery
	err := s.cfg.Tx.InTx(ctx, func(ctx context.Context) error {
		row, err := s.find(ctx, id, opts.Scoped, opts.OrganizationID)
		if err != nil {
			return err
		}
		edit := driver.Edit{
			ID: id, From: sources(StatusPending, causeRedeliver), Redeliver: true,
			Scoped: opts.Scoped, OrganizationID: opts.OrganizationID,
		}
		if err := s.checkRedeliver(ctx, row, opts, &edit); err != nil {
			return err
		}
		row, applied, err := s.cfg.Store.Edit(ctx, edit)
		switch {
		case err != nil:
			return fmt.Errorf("redeliver: %w", err)
		case row == nil:
			return ErrNotFound
		case !applied:
			return &NotEligibleError{ID: id, Status: row.Status, Reason: "only a finished delivery can be sent again"}
		}
		out = deliveryOf(row)
		storage.AfterCommit(ctx, func(context.Context) { s.dispatch.waiting(row) })
		return nil
	})
	return out, err
}

// checkRedeliver refuses what cannot be sent, and completes the edit.
func (s *Service) checkRedeliver(ctx context.Context, row *driver.Row, opts RedeliverOptions, edit *driver.Edit) error {
	if !row.Status.Terminal() {
		return &NotEligibleError{ID: row.ID, Status: row.Status, Reason: "only a finished delivery can be sent again"}
	}
	targets, err := s.cfg.Store.Targets(ctx, []int64{row.TargetID}, nil)
	if err != nil {
		return fmt.Errorf("redeliver: %w", err)
	}
	if len(targets) == 0 || targets[0].State == TargetGone {
		return &NotEligibleError{ID: row.ID, Status: row.Status, Reason: "its target no longer exists"}
	}
	headers, err := s.redeliverHeaders(row, opts)
	if err != nil {
		return err
	}
	if row.Parked {
		if row.SecretSealed == "" && s.openTarget(targets[0]).Unreadable != "" {
			return ErrNeverSent
		}
		if _, err := s.open(row.SecretSealed, aadSecret); err != nil {
			return ErrNeverSent
		}
	}
	edit.Replace = true
	edit.URL, edit.Method, edit.TimeoutMillis, edit.HeadersSealed = row.URL, row.Method, row.TimeoutMillis, headers
	if c := opts.Current; c != nil {
		fresh, err := s.rowOf(&Request{Source: row.Source, URL: c.URL, Method: c.Method, Timeout: c.Timeout, Headers: c.Headers})
		if err != nil {
			return err
		}
		edit.URL, edit.Method, edit.TimeoutMillis, edit.HeadersSealed = fresh.URL, fresh.Method, fresh.TimeoutMillis, fresh.HeadersSealed
	}
	return nil
}

// redeliverHeaders returns the sealed headers that the row goes on with.
func (s *Service) redeliverHeaders(row *driver.Row, opts RedeliverOptions) (string, error) {
	if !row.Parked || opts.Current != nil {
		return row.HeadersSealed, nil
	}
	if opts.Headers != nil {
		return s.SealHeaders(opts.Headers)
	}
	if _, err := s.open(row.HeadersSealed, aadHeaders); err != nil {
		return "", ErrNeverSent
	}
	return row.HeadersSealed, nil
}

// Cancel ends a waiting delivery as failed with a reason. It returns
// [ErrNotFound], or a *[NotEligibleError] for a delivery that is in flight or
// has ended. It joins the transaction of ctx.
func (s *Service) Cancel(ctx context.Context, id, reason string, opts RedeliverOptions) (Delivery, error) {
	if reason == "" {
		return Delivery{}, errors.New("messaging: a cancellation needs a reason")
	}
	var out Delivery
	err := s.cfg.Tx.InTx(ctx, func(ctx context.Context) error {
		if _, err := s.find(ctx, id, opts.Scoped, opts.OrganizationID); err != nil {
			return err
		}
		row, applied, err := s.cfg.Store.Edit(ctx, driver.Edit{
			ID: id, From: sources(StatusFailed, causeCancel), Status: StatusFailed, Error: reason,
			Scoped: opts.Scoped, OrganizationID: opts.OrganizationID,
		})
		switch {
		case err != nil:
			return fmt.Errorf("cancel delivery: %w", err)
		case row == nil:
			return ErrNotFound
		case !applied:
			return &NotEligibleError{ID: id, Status: row.Status, Reason: "only a waiting delivery can be cancelled"}
		}
		out = deliveryOf(row)
		return s.appendFinished(ctx, row)
	})
	return out, err
}

func (s *Service) find(ctx context.Context, id string, scoped bool, organization string) (*driver.Row, error) {
	row, err := s.cfg.Store.Get(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("find delivery: %w", err)
	}
	if row == nil || scoped && row.OrganizationID != organization {
		return nil, ErrNotFound
	}
	return row, nil
}

// appendFinished appends the delivery.finished events of rows that ended, in
// the transaction of ctx.
func (s *Service) appendFinished(ctx context.Context, rows ...*driver.Row) error {
	if s.cfg.Events == nil || len(rows) == 0 {
		return nil
	}
	events := make([]*event.Event, len(rows))
	for i, r := range rows {
		e, err := finishedEvent(r)
		if err != nil {
			return fmt.Errorf("append finish of %s: %w", r.ID, err)
		}
		events[i] = e
	}
	if err := s.cfg.Events.Append(ctx, events...); err != nil {
		return fmt.Errorf("append delivery.finished: %w", err)
	}
	return nil
}
