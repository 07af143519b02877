package webhooks

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/plugins/webhooks/sqlstore"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/storage"
)

// ServiceKey is the key of the service.
var ServiceKey = core.NewKey[*Service]("webhook.autoEnqueuer")

// Errors of [Service] that callers may test for. Besides these they are those
// of the outbox and the data service.
var (
	// ErrNotFound is returned for a webhook that does not exist or belongs to
	// another organization.
	ErrNotFound = errors.New("webhooks: webhook not found")
	// ErrHeld is returned by Test for a webhook that is inactive or paused:
	// its deliveries wait.
	ErrHeld = errors.New("webhooks: the webhook is inactive or paused")
	// ErrNotWebhook is returned by Redeliver for UseCurrent on a delivery that
	// belongs to no webhook.
	ErrNotWebhook = errors.New("webhooks: the delivery belongs to no webhook")
)

// Service is what the plugin offers to routes and other plugins. Its methods
// check no permission: routes ask for theirs, and plugins are trusted. They keep
// to the organization of the context's principal; the host itself reaches all
// of them. It is safe for concurrent use.
type Service struct {
	db     *storage.DB
	store  *sqlstore.Store
	engine *data.Engine
	outbox *messaging.Service
	door   *door
	// history is the event log, for replays.
	history history
	// enqueuer matches events; the plugin's consumer calls it.
	enqueuer *enqueuer
	log      *slog.Logger

	declared declarations
}

// organization tells whether the principal of ctx is limited to one.
func organization(ctx context.Context) (id string, scoped bool) {
	p := identity.From(ctx)
	return p.OrganizationID, !p.Everywhere
}

// validText reports whether both databases take a text; no id is one that they
// do not.
func validText(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// webhook returns a webhook that the principal of ctx may see.
func (s *Service) webhook(ctx context.Context, id string) (*sqlstore.Webhook, error) {
	if !validText(id) {
		return nil, ErrNotFound
	}
	row, err := s.store.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if own, scoped := organization(ctx); row == nil || scoped && row.OrganizationID != own {
		return nil, ErrNotFound
	}
	return row, nil
}

// Redeliver sends a delivery that has ended once more: same bytes, same id,
// attempts from 0. useCurrent takes the webhook's present URL, method, timeout
// and headers instead of those at enqueue. It returns
// [messaging.ErrNotFound], a *[messaging.NotEligibleError] for a delivery that
// has not ended or whose webhook is gone, [messaging.ErrNeverSent] for a parked
// one whose secrets are still unreadable, and [ErrNotWebhook].
func (s *Service) Redeliver(ctx context.Context, id string, useCurrent bool) (messaging.Delivery, error) {
	if !validText(id) {
		return messaging.Delivery{}, messaging.ErrNotFound
	}
	own, scoped := organization(ctx)
	opts := messaging.RedeliverOptions{Scoped: scoped, OrganizationID: own}
	var out messaging.Delivery
	err := s.db.InTx(ctx, func(ctx context.Context) error {
		d, err := s.outbox.Get(ctx, id)
		if err != nil {
			return err
		}
		if scoped && d.OrganizationID != own {
			return messaging.ErrNotFound
		}
		if d.Source == messaging.SourceWebhook {
			if err := s.readAnew(ctx, &d, useCurrent, &opts); err != nil {
				return err
			}
		} else if useCurrent {
			return ErrNotWebhook
		}
		out, err = s.outbox.Redeliver(ctx, id, opts)
		return err
	})
	return out, err
}

// readAnew completes the redelivery of a webhook's row with what the webhook
// says now: a parked row gets its headers, and the target its secrets, which
// may have become readable since.
func (s *Service) readAnew(ctx context.Context, d *messaging.Delivery, useCurrent bool, opts *messaging.RedeliverOptions) error {
	// Held to the end, so that no other write replaces a secret half-way.
	row, err := s.store.Lock(ctx, d.RefID)
	if err != nil {
		return err
	}
	if row == nil {
		return &messaging.NotEligibleError{ID: d.ID, Status: d.Status, Reason: fmt.Sprintf("the webhook %q no longer exists", d.RefID)}
	}
	if !d.Status.Terminal() {
		return nil // the outbox refuses it
	}
	sub := compile(row)
	t := targetOf(row, &sub.rules)
	current, err := s.outbox.Target(ctx, t.Source, t.Key, t.OrganizationID)
	if err != nil {
		return err
	}
	if err := s.door.sign(ctx, &t, current, row, sub.rules.authType); err != nil {
		return err
	}
	if current == nil || current.Unreadable != t.Unreadable {
		if err := s.outbox.PutTarget(ctx, t); err != nil {
			return err
		}
	}
	headers, err := openHeaders(ctx, s.engine, row)
	var unreadable *unreadableError
	switch {
	case errors.As(err, &unreadable), err == nil && sub.broken != "":
		if useCurrent || d.Parked {
			return messaging.ErrNeverSent
		}
		return nil
	case err != nil:
		return err
	}
	if headers == nil {
		headers = map[string]string{}
	}
	opts.Headers = headers
	if useCurrent {
		end := sub.endpoint()
		opts.Current = &messaging.Endpoint{URL: end.URL, Method: end.Method, Headers: headers, Timeout: end.Timeout}
	}
	return nil
}

// Rotate gives a webhook a new signing secret and returns it; it is shown
// nowhere else. For the overlap the old one signs as well. A package's webhook
// counts as customized from then on, so that the package does not bring the old
// secret back.
func (s *Service) Rotate(ctx context.Context, id string, overlap time.Duration) (secret string, err error) {
	if _, err := s.webhook(ctx, id); err != nil {
		return "", err
	}
	secret = newSecret()
	// The permission to rotate is enough: it does not include that to write.
	p := identity.From(ctx)
	p.System = true
	ctx = withRotation(identity.With(ctx, p), overlap)
	if _, err := s.engine.Update(ctx, ObjectName, id, data.Record{fieldSecret: secret}, data.Match{}); err != nil {
		return "", fmt.Errorf("rotate secret: %w", err)
	}
	return secret, nil
}

// newSecret is a secret of 32 random bytes as Standard Webhooks writes it.
func newSecret() string {
	var raw [32]byte
	_, _ = rand.Read(raw[:]) // never fails
	return "whsec_" + base64.StdEncoding.EncodeToString(raw[:])
}

// TestLabel is the label, and the type of the event, of a test delivery.
const TestLabel = "webhook.test"

// How long Test waits for the attempt at most, beyond what the webhook's own
// timeout allows, and how often it looks.
const (
	testMargin   = 5 * time.Second
	testLongest  = time.Minute
	testFirstGap = 20 * time.Millisecond
	testLastGap  = 500 * time.Millisecond
)

// Test sends a signed sample event through the whole pipeline and returns the
// delivery after its first attempt. The sample is sent once: when the attempt
// would be retried the delivery is cancelled. It returns [ErrNotFound] and
// [ErrHeld].
func (s *Service) Test(ctx context.Context, id string) (TestResult, error) {
	row, err := s.webhook(ctx, id)
	if err != nil {
		return TestResult{}, err
	}
	if !row.Active || row.Paused {
		return TestResult{}, ErrHeld
	}
	sub := compile(row)
	req, err := s.sample(ctx, sub)
	if err != nil {
		return TestResult{}, err
	}
	sent, err := s.outbox.Enqueue(ctx, req)
	if err != nil {
		return TestResult{}, fmt.Errorf("enqueue test: %w", err)
	}
	timeout := req.Timeout
	if timeout == 0 {
		timeout = messaging.DefaultTimeout
	}
	wait, cancel := context.WithTimeout(ctx, min(timeout+testMargin, testLongest))
	defer cancel()
	result, err := s.firstAttempt(wait, sent.ID)
	if err != nil && wait.Err() == nil {
		return TestResult{}, err
	}
	// The sample must not be retried after the caller has gone away either.
	end, done := context.WithTimeout(context.WithoutCancel(ctx), testMargin)
	defer done()
	_, err = s.outbox.Cancel(end, sent.ID, "a test is sent once", messaging.RedeliverOptions{})
	var ended *messaging.NotEligibleError
	if err != nil && !errors.As(err, &ended) {
		return TestResult{}, fmt.Errorf("cancel test: %w", err)
	}
	if result.Delivery, err = s.outbox.Get(end, sent.ID); err != nil {
		return TestResult{}, err
	}
	return result, ctx.Err()
}

// sample is the request of a test delivery.
func (s *Service) sample(ctx context.Context, sub *subscription) (messaging.Request, error) {
	name := sub.object
	if name == "" {
		name = "sample"
	}
	e := event.Event{
		ID: uuid.Must(uuid.NewV7()).String(), Type: TestLabel, Object: name, RecordID: "sample",
		After:          json.RawMessage(`{"id":"sample"}`),
		UserID:         identity.From(ctx).UserID,
		OrganizationID: sub.organization,
	}
	now, err := s.store.Now(ctx)
	if err != nil {
		return messaging.Request{}, err
	}
	e.Timestamp = now
	req := sub.endpoint()
	if req.Payload, err = e.AppendJSON(nil, "test"); err != nil {
		return messaging.Request{}, fmt.Errorf("encode sample: %w", err)
	}
	req.Label, req.EventID = TestLabel, e.ID
	req.Sealed, req.Parked, err = s.enqueuer.open(ctx, sub)
	return req, err
}
