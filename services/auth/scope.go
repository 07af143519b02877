package auth

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/objecthost/objecthost/core/identity"
)

// Scopes is what a key may do. An entry is one of
//
//	admin                 everything
//	data:read             get and list on every object
//	data:write            create, update and delete on every object
//	object:<name>:<op>    one object; op is get, list, create, update, delete,
//	                      read (get and list), write (the other three) or *
//	<area>.<action>       a system permission such as webhooks.redeliver
//
// The owner of an object may ask for a system permission on top: data:write
// alone does not write sys_webhook, which needs webhooks.manage as well.
type Scopes []string

// ScopeAdmin allows everything.
const ScopeAdmin = "admin"

const (
	scopeDataRead  = "data:read"
	scopeDataWrite = "data:write"
	maxScopes      = 200
	maxScopeLength = 200
)

var (
	objectName       = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)
	systemPermission = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+$`)
)

// scopeOperations lists what the last part of an object scope stands for.
var scopeOperations = map[string][]identity.Operation{
	"get":    {identity.OperationRead},
	"list":   {identity.OperationList},
	"create": {identity.OperationCreate},
	"update": {identity.OperationUpdate},
	"delete": {identity.OperationDelete},
	"read":   readOperations,
	"write":  writeOperations,
	"*":      slices.Concat(readOperations, writeOperations),
}

var (
	readOperations  = []identity.Operation{identity.OperationRead, identity.OperationList}
	writeOperations = []identity.Operation{
		identity.OperationCreate, identity.OperationUpdate, identity.OperationDelete,
	}
)

// ScopeError tells of a scope that is not one.
type ScopeError struct {
	// Scope is the entry, "" when the list as a whole is wrong.
	Scope string
	// Reason completes the sentence "scope … ".
	Reason string
}

func (e *ScopeError) Error() string {
	if e.Scope == "" {
		return "auth: scopes " + e.Reason
	}
	return fmt.Sprintf("auth: scope %q %s", e.Scope, e.Reason)
}

// Validate returns a *[ScopeError] for the first entry that is not a scope. An
// empty list is refused: such a key could do nothing.
func (s Scopes) Validate() error {
	switch {
	case len(s) == 0:
		return &ScopeError{Reason: "must name at least one permission"}
	case len(s) > maxScopes:
		return &ScopeError{Reason: fmt.Sprintf("must be at most %d", maxScopes)}
	}
	for i, entry := range s {
		if entry == "" {
			return &ScopeError{Reason: "must not hold an empty entry"}
		}
		if len(entry) > maxScopeLength {
			return &ScopeError{Reason: fmt.Sprintf("must be at most %d characters each", maxScopeLength)}
		}
		if slices.Contains(s[:i], entry) {
			return &ScopeError{Scope: entry, Reason: "is given twice"}
		}
		if reason := checkScope(entry); reason != "" {
			return &ScopeError{Scope: entry, Reason: reason}
		}
	}
	return nil
}

func checkScope(entry string) (reason string) {
	switch {
	case entry == ScopeAdmin, entry == scopeDataRead, entry == scopeDataWrite, systemPermission.MatchString(entry):
		return ""
	case !strings.HasPrefix(entry, "object:"):
		return "is not admin, data:read, data:write, object:<name>:<op> or a system permission"
	}
	name, op, ok := objectScope(entry)
	switch {
	case !ok || !objectName.MatchString(name):
		return "does not name an object as object:<name>:<op>"
	case scopeOperations[op] == nil:
		return "does not end in get, list, create, update, delete, read, write or *"
	}
	return ""
}

func objectScope(entry string) (name, op string, ok bool) {
	rest, ok := strings.CutPrefix(entry, "object:")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, ":")
}

// Can reports whether the scopes allow an operation on an object's records.
func (s Scopes) Can(op identity.Operation, object string) bool {
	for _, entry := range s {
		switch {
		case entry == ScopeAdmin:
			return true
		case entry == scopeDataRead && slices.Contains(readOperations, op),
			entry == scopeDataWrite && slices.Contains(writeOperations, op):
			return true
		}
		if name, spelled, ok := objectScope(entry); ok && name == object && slices.Contains(scopeOperations[spelled], op) {
			return true
		}
	}
	return false
}

// Has reports whether the scopes hold a system permission.
func (s Scopes) Has(permission string) bool {
	return slices.Contains(s, ScopeAdmin) ||
		systemPermission.MatchString(permission) && slices.Contains(s, permission)
}

// lacking returns the first entry of wanted that goes beyond s, "" for none.
func (s Scopes) lacking(wanted Scopes) string {
	for _, entry := range wanted {
		if !s.covers(entry) {
			return entry
		}
	}
	return ""
}

func (s Scopes) covers(entry string) bool {
	if slices.Contains(s, ScopeAdmin) || slices.Contains(s, entry) {
		return true
	}
	name, op, ok := objectScope(entry)
	if !ok {
		return false
	}
	for _, single := range scopeOperations[op] {
		if !s.Can(single, name) {
			return false
		}
	}
	return true
}

// String is the JSON form, as it is stored.
func (s Scopes) String() string {
	b, _ := json.Marshal([]string(s)) // strings always marshal
	return string(b)
}
