package webhooks

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/plugins/webhooks/sqlstore"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/storage/seal"
)

// vault opens the references of secret columns.
type vault interface {
	Reveal(ctx context.Context, ref string) ([]byte, error)
}

// openedSecrets caches the custom headers of a subscription as the outbox takes
// them. What cannot be read is tried again with every event, so that a secret
// that becomes readable needs no further write.
type openedSecrets struct {
	mu       sync.Mutex
	opened   bool
	reported bool
	sealed   string
}

// unreadableError tells which secret of a webhook cannot be read and never
// what it holds.
type unreadableError struct {
	what string
	err  error
}

func (e *unreadableError) Error() string { return e.what + " is set but cannot be read" }

func (e *unreadableError) Unwrap() error { return e.err }

// openSigning reads a webhook's signing secret and credentials. The error is an
// *unreadableError when one exists but cannot be read or makes no sense; others
// come from the database.
func openSigning(ctx context.Context, v vault, row *sqlstore.Webhook, authType string) ([]byte, *messaging.Authentication, error) {
	secret, err := reveal(ctx, v, "signing secret", row.Secret)
	if err != nil {
		return nil, nil, err
	}
	if authType == "" || authType == messaging.AuthNone {
		return secret, nil, nil
	}
	credentials, err := reveal(ctx, v, "authentication", row.Auth)
	switch {
	case err != nil:
		return nil, nil, err
	case credentials == nil:
		return nil, nil, &unreadableError{"authentication", errors.New("it has a type but no credentials")}
	}
	auth, err := parseAuthentication(authType, string(credentials))
	if err != nil {
		return nil, nil, &unreadableError{"authentication", err}
	}
	return secret, auth, nil
}

// openHeaders reads a webhook's custom headers, nil for none. Errors are those
// of openSigning.
func openHeaders(ctx context.Context, v vault, row *sqlstore.Webhook) (map[string]string, error) {
	source, err := reveal(ctx, v, "header map", row.Headers)
	if err != nil || source == nil {
		return nil, err
	}
	headers, err := decodeHeaders(string(source))
	if err != nil {
		return nil, &unreadableError{"header map", err}
	}
	return headers, nil
}

// reveal opens one reference, nil for none.
func reveal(ctx context.Context, v vault, what, ref string) ([]byte, error) {
	if ref == "" {
		return nil, nil
	}
	secret, err := v.Reveal(identity.With(ctx, identity.System()), ref)
	switch {
	case err == nil:
		return secret, nil
	case errors.Is(err, seal.ErrUnreadable), errors.Is(err, data.ErrNoSecret):
		return nil, &unreadableError{what, err}
	}
	return nil, fmt.Errorf("read %s: %w", what, err)
}
