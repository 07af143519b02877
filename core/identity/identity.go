// Package identity carries the calling principal through a context and names
// the questions that are asked about it.
package identity

import (
	"context"
	"errors"
	"fmt"
)

// Operation is what a caller wants to do with an object's records.
type Operation string

// The operations of the data API. OperationRead covers reading one record,
// OperationList many.
const (
	OperationRead   Operation = "get"
	OperationList   Operation = "list"
	OperationCreate Operation = "create"
	OperationUpdate Operation = "update"
	OperationDelete Operation = "delete"
)

// DefaultOrganization names the organization that is there from the beginning
// where organizations are listed or chosen. Its records, and the principals that
// act in it, have no organization id: what was written before there were other
// organizations belongs to it.
const DefaultOrganization = "default"

// Principal is who calls. The zero value is the anonymous caller.
type Principal struct {
	// UserID is the user on whose behalf the call is made, "" for none.
	UserID string
	// OrganizationID is the organization that the call acts in, "" for the
	// default one. Whatever the principal may do, it reaches the records of
	// this organization only.
	OrganizationID string
	// KeyID is the API key that authenticated the call, "" for none.
	KeyID string
	// SessionID is the session that authenticated the call, "" for none.
	SessionID string
	// System marks calls of the host itself, which no permission is asked of.
	System bool
	// Everywhere lifts the bound to one organization. Only the host itself has
	// it, never a call that somebody else began: a flow with the rights of the
	// host still acts in the organization of its trigger.
	Everywhere bool
}

// Authenticated reports whether the principal is somebody.
func (p Principal) Authenticated() bool {
	return p.System || p.UserID != "" || p.KeyID != ""
}

// System is the host itself, in all organizations.
func System() Principal { return Principal{System: true, Everywhere: true} }

type contextKey struct{}

// With returns a context that carries p.
func With(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// From returns the principal that ctx carries, the anonymous one for none.
func From(ctx context.Context) Principal {
	p, _ := ctx.Value(contextKey{}).(Principal)
	return p
}

// Authorizer decides what the principal in ctx may do. Implementations are
// safe for concurrent use.
type Authorizer interface {
	// Can returns nil when the operation on the object is allowed,
	// [ErrUnauthenticated] for an anonymous caller, and a *[DeniedError]
	// otherwise.
	Can(ctx context.Context, op Operation, object string) error
	// Has is the same for a system permission such as webhooks.redeliver.
	Has(ctx context.Context, permission string) error
}

// Auditor keeps the log of administrative acts. An [Authorizer] may be one.
type Auditor interface {
	// Audit writes that the principal of ctx did something, in the transaction
	// of ctx where there is one, so that it is told exactly if it was done.
	// action is a noun and a verb with a dot between (webhook.rotate), target
	// what it was done to. detail is encoded as JSON and must hold no secret;
	// nil for none.
	Audit(ctx context.Context, action, targetType, targetID string, detail any) error
}

// ErrUnauthenticated is returned for a caller without valid credentials.
var ErrUnauthenticated = errors.New("identity: authentication required")

// DeniedError is returned for a caller without the permission.
type DeniedError struct {
	// Permission is the system permission, or the operation, that is missing.
	Permission string
	// Object is the object's name, "" for a system permission.
	Object string
}

func (e *DeniedError) Error() string {
	if e.Object == "" {
		return fmt.Sprintf("identity: permission %q is required", e.Permission)
	}
	return fmt.Sprintf("identity: %s on object %q is not permitted", e.Permission, e.Object)
}
