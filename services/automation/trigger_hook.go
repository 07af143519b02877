package automation

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/objecthost/objecthost/core/identity"
)

// Hook starts a flow of type api by a call from outside and returns the run's
// id; the run is executed later. body is what was received, byte for byte, and
// signature the X-Objectstack-Signature header: sha256= and the hex HMAC-SHA256
// of body under the hook's secret. A hook without a secret takes authenticated
// callers only. The JSON object in body is the parameters; any other JSON value
// is the parameter body. Errors are ErrFlowNotFound, also for a wrong hook id,
// ErrSignature, identity.ErrUnauthenticated, ErrFlowDisabled, ErrNoStartNode
// and *InvalidInputError. The id is empty when the start condition was false.
func (s *Service) Hook(ctx context.Context, name, hook string, body []byte, signature string) (string, error) {
	h, err := s.flows.find(ctx, name)
	if err != nil {
		return "", err
	}
	if h.flow == nil || h.flow.binding == nil || h.flow.binding.hook != hook {
		return "", ErrFlowNotFound
	}
	caller := identity.From(ctx)
	if secret := h.flow.binding.secret; secret != "" {
		if !signed([]byte(secret), body, signature) {
			return "", ErrSignature
		}
	} else if !caller.Authenticated() {
		return "", identity.ErrUnauthenticated
	}
	fl, err := s.flows.runnable(ctx, name)
	if err != nil {
		return "", err
	}
	params, err := hookParams(body)
	if err != nil {
		return "", err
	}
	tr := &trigger{Type: triggerAPI, Event: hook, Params: params, Principal: onBehalf(caller)}
	row := s.newRow(fl, tr)
	keep, err := s.admit(ctx, fl, tr, row)
	if err != nil || !keep {
		return "", err
	}
	if _, err := s.store.Insert(ctx, row); err != nil {
		return "", err
	}
	s.poke()
	return row.ID, nil
}

// signed compares in constant time.
func signed(secret, body []byte, signature string) bool {
	given, err := hex.DecodeString(strings.TrimPrefix(signature, "sha256="))
	if err != nil || !strings.HasPrefix(signature, "sha256=") {
		return false
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write(body)
	return hmac.Equal(given, mac.Sum(nil))
}

func hookParams(body []byte) (map[string]any, error) {
	if len(strings.TrimSpace(string(body))) == 0 {
		return map[string]any{}, nil
	}
	var value any
	if err := decodeJSON(body, &value); err != nil {
		return nil, &InvalidInputError{"The body must be JSON."}
	}
	if params, ok := value.(map[string]any); ok {
		return params, nil
	}
	return map[string]any{"body": value}, nil
}
