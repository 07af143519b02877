package identity_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/objecthost/objecthost/core/identity"
)

func TestPrincipalTravelsInTheContext(t *testing.T) {
	t.Parallel()
	if got := identity.From(t.Context()); got != (identity.Principal{}) {
		t.Errorf("principal of a plain context = %+v", got)
	}
	user := identity.Principal{UserID: "u", OrganizationID: "o", SessionID: "s"}
	outer := identity.With(t.Context(), user)
	inner := identity.With(outer, identity.System())
	if got := identity.From(inner); got != (identity.Principal{System: true, Everywhere: true}) {
		t.Errorf("inner principal = %+v", got)
	}
	if got := identity.From(outer); got != user {
		t.Errorf("outer principal = %+v", got)
	}
	child, cancel := context.WithCancel(outer)
	defer cancel()
	if got := identity.From(child); got != user {
		t.Errorf("principal of a derived context = %+v", got)
	}
}

func TestAuthenticated(t *testing.T) {
	t.Parallel()
	tests := []struct {
		principal identity.Principal
		want      bool
	}{
		{identity.Principal{}, false},
		{identity.Principal{OrganizationID: "o"}, false},
		{identity.Principal{SessionID: "s"}, false},
		{identity.Principal{UserID: "u"}, true},
		{identity.Principal{KeyID: "k"}, true},
		{identity.System(), true},
	}
	for _, tt := range tests {
		if got := tt.principal.Authenticated(); got != tt.want {
			t.Errorf("Authenticated of %+v = %t", tt.principal, got)
		}
	}
}

func TestDeniedError(t *testing.T) {
	t.Parallel()
	tests := []struct {
		err  *identity.DeniedError
		want string
	}{
		{&identity.DeniedError{Permission: "webhooks.redeliver"}, `identity: permission "webhooks.redeliver" is required`},
		{&identity.DeniedError{Permission: string(identity.OperationDelete), Object: "crm_account"}, `identity: delete on object "crm_account" is not permitted`},
	}
	for _, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("error = %s, want %s", got, tt.want)
		}
		var denied *identity.DeniedError
		if err := fmt.Errorf("write: %w", tt.err); !errors.As(err, &denied) || denied != tt.err || errors.Is(err, identity.ErrUnauthenticated) {
			t.Errorf("wrapped error = %v", err)
		}
	}
}
