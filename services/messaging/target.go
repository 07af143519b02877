package messaging

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/storage"
)

// TargetState tells whether a target's rows are sent.
type TargetState = driver.TargetState

// The states of a target.
const (
	TargetActive = driver.TargetActive
	TargetHeld   = driver.TargetHeld
	TargetGone   = driver.TargetGone
)

// Target is where deliveries go as far as limits, signing and authentication
// are concerned. Its rows are found by (Source, Key, OrganizationID).
type Target struct {
	Source, Key, OrganizationID string
	State                       TargetState
	// Reason says why the target is held or gone.
	Reason string
	// MaxConcurrency caps requests in flight, 1 to 64; 0 means the default.
	MaxConcurrency int
	// RatePerSecond and RateBurst limit the request rate; 0 means no limit.
	RatePerSecond float64
	RateBurst     int
	// Retry replaces the default schedule; nil keeps it.
	Retry *RetryPolicy
	// Serial tells that all rows have one ordering key, so that a single node
	// of a cluster serves them.
	Serial bool
	// Signature chooses the signature headers; "" is objectstack.
	Signature SignatureScheme
	// Secret signs; PreviousSecret signs as well until PreviousUntil.
	Secret, PreviousSecret []byte
	PreviousUntil          time.Time
	// Auth is applied to every request; nil for none.
	Auth *Authentication
	// Unreadable, when set, parks the target's rows with this reason: its
	// secrets exist but cannot be read.
	Unreadable string
	// FailingSince and LastSuccessAt are read only.
	FailingSince, LastSuccessAt time.Time
}

// The additional data that binds sealed values to their column.
var (
	aadHeaders = []byte("sys_http_delivery.headers_json")
	aadSecret  = []byte("sys_http_delivery.signing_secret")
	aadTarget  = []byte("sys_http_target.secrets")
)

// PutTarget inserts or updates a target in the transaction of ctx. Rows that
// wait for a target that becomes active again are sent, rows of one that is
// gone end as failed.
func (s *Service) PutTarget(ctx context.Context, t Target) error {
	row, err := s.sealTarget(&t)
	if err != nil {
		return err
	}
	if err := s.cfg.Store.PutTarget(ctx, row, false); err != nil {
		return fmt.Errorf("put target %s/%s: %w", t.Source, t.Key, err)
	}
	storage.AfterCommit(ctx, func(context.Context) {
		s.dispatch.targetChanged(row.ID)
		s.dispatch.announce(topicTarget, strconv.FormatInt(row.ID, 10))
	})
	return nil
}

// Target returns a target, or nil when there is none.
func (s *Service) Target(ctx context.Context, source, key, organization string) (*Target, error) {
	rows, err := s.cfg.Store.Targets(ctx, nil, []driver.TargetKey{{Source: source, Key: key, OrganizationID: organization}})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	t := s.openTarget(rows[0])
	return &t, nil
}

func (s *Service) sealTarget(t *Target) (*driver.Target, error) {
	if t.Source == "" || t.Key == "" {
		return nil, &RequestError{Field: "Target", Reason: "source and key are required"}
	}
	if t.MaxConcurrency < 0 || t.MaxConcurrency > 64 {
		return nil, &RequestError{Field: "MaxConcurrency", Reason: fmt.Sprintf("%d is outside 1 to 64", t.MaxConcurrency)}
	}
	row := &driver.Target{
		Source: t.Source, Key: t.Key, OrganizationID: t.OrganizationID, State: t.State,
		Reason: t.Reason, MaxConcurrency: t.MaxConcurrency, RatePerSecond: t.RatePerSecond,
		RateBurst: t.RateBurst, Serial: t.Serial, SignatureScheme: string(t.Signature),
	}
	def(&row.State, TargetActive)
	if t.Unreadable != "" {
		// A value that no key opens: every reader sees it as unreadable.
		row.SecretSealed = "unreadable:" + t.Unreadable
	} else if err := s.sealInto(&row.SecretSealed, t.Secret); err != nil {
		return nil, err
	}
	if err := s.sealInto(&row.PreviousSecretSealed, t.PreviousSecret); err != nil {
		return nil, err
	}
	if !t.PreviousUntil.IsZero() {
		row.PreviousUntil = t.PreviousUntil.UnixMilli()
	}
	if t.Auth != nil {
		plain, err := json.Marshal(t.Auth)
		if err != nil {
			return nil, err
		}
		if err := s.sealInto(&row.AuthSealed, plain); err != nil {
			return nil, err
		}
	}
	if t.Retry != nil {
		if err := t.Retry.Validate(); err != nil {
			return nil, &RequestError{Field: "Retry", Reason: err.Error(), Err: err}
		}
		policy, err := json.Marshal(t.Retry)
		if err != nil {
			return nil, err
		}
		row.RetryPolicy = string(policy)
	}
	return row, nil
}

func (s *Service) sealInto(field *string, plain []byte) error {
	if len(plain) == 0 {
		return nil
	}
	if s.cfg.Sealer == nil {
		return ErrNoSealer
	}
	sealed, err := s.cfg.Sealer.Seal(plain, aadTarget)
	*field = sealed
	return err
}

// openTarget unseals a target. What cannot be read ends up in Unreadable.
func (s *Service) openTarget(row *driver.Target) Target {
	t := Target{
		Source: row.Source, Key: row.Key, OrganizationID: row.OrganizationID, State: row.State,
		Reason: row.Reason, MaxConcurrency: row.MaxConcurrency, RatePerSecond: row.RatePerSecond,
		RateBurst: row.RateBurst, Serial: row.Serial, Signature: SignatureScheme(row.SignatureScheme),
		PreviousUntil: timeOf(row.PreviousUntil), FailingSince: timeOf(row.FailingSince),
		LastSuccessAt: timeOf(row.LastSuccessAt),
	}
	open := func(what, sealed string) []byte {
		plain, err := s.open(sealed, aadTarget)
		if err != nil {
			t.Unreadable = what + " is set but cannot be read"
		}
		return plain
	}
	t.Secret = open("signing secret", row.SecretSealed)
	t.PreviousSecret = open("previous signing secret", row.PreviousSecretSealed)
	if auth := open("authentication", row.AuthSealed); auth != nil {
		t.Auth = new(Authentication)
		if err := json.Unmarshal(auth, t.Auth); err != nil {
			t.Unreadable = "authentication is set but cannot be read"
		}
	}
	if row.RetryPolicy != "" {
		policy := new(RetryPolicy)
		if err := json.Unmarshal([]byte(row.RetryPolicy), policy); err == nil && policy.Validate() == nil {
			t.Retry = policy
		}
	}
	return t
}

// open returns nil for an empty sealed text.
func (s *Service) open(sealed string, aad []byte) ([]byte, error) {
	if sealed == "" {
		return nil, nil
	}
	if s.cfg.Sealer == nil {
		return nil, ErrNoSealer
	}
	return s.cfg.Sealer.Open(sealed, aad)
}
