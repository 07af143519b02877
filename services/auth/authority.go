package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/auth/driver"
)

// The roles that every organization has. Their names cannot be given to others.
const (
	RoleOwner  = "owner"
	RoleAdmin  = "admin"
	RoleMember = "member"
	RoleViewer = "viewer"
)

// builtin is what the roles of every organization may do.
var builtin = map[string]Scopes{
	RoleOwner:  {ScopeAdmin},
	RoleAdmin:  {ScopeAdmin},
	RoleMember: {scopeDataRead, scopeDataWrite},
	RoleViewer: {scopeDataRead},
}

// builtinOrder is the order in which they are listed.
var builtinOrder = []string{RoleOwner, RoleAdmin, RoleMember, RoleViewer}

// authority is what a caller may do: what each of the lists allows. A key that
// a user made has two, its own and the user's, so that it never reaches further
// than the user does now.
type authority struct {
	lists []Scopes
	// foreign callers act in another than the default organization. What
	// reaches over organizations is not for them.
	foreign bool
	hosts   map[string]bool
}

// Can reports whether an operation on an object's records is allowed.
func (a authority) Can(op identity.Operation, object string) bool {
	return len(a.lists) > 0 && !slices.ContainsFunc(a.lists, func(s Scopes) bool { return !s.Can(op, object) })
}

// Has reports whether a system permission is held.
func (a authority) Has(permission string) bool {
	if a.foreign && a.hosts[permission] {
		return false
	}
	return len(a.lists) > 0 && !slices.ContainsFunc(a.lists, func(s Scopes) bool { return !s.Has(permission) })
}

// lacking returns the first entry of wanted that goes beyond the authority, ""
// for none.
func (a authority) lacking(wanted Scopes) string {
	if len(a.lists) == 0 && len(wanted) > 0 {
		return wanted[0]
	}
	for _, list := range a.lists {
		if entry := list.lacking(wanted); entry != "" {
			return entry
		}
	}
	if i := slices.IndexFunc(wanted, func(entry string) bool { return a.foreign && a.hosts[entry] }); i >= 0 {
		return wanted[i]
	}
	return ""
}

// authorityOf tells what the principal of ctx may do now.
// identity.ErrUnauthenticated is wrapped by the error for one who is nobody, or
// nobody any more.
func (s *Service) authorityOf(ctx context.Context) (authority, error) {
	caller := identity.From(ctx)
	a := authority{foreign: caller.OrganizationID != "" && !caller.System, hosts: s.hostPermissions}
	switch {
	case caller.System:
		a.lists = []Scopes{{ScopeAdmin}}
		return a, nil
	case !caller.Authenticated():
		return a, identity.ErrUnauthenticated
	}
	userID := caller.UserID
	if caller.KeyID != "" {
		key, err := s.keyOf(ctx, caller)
		if err != nil {
			return a, err
		}
		a.lists = append(a.lists, key.Scopes)
		userID = key.UserID
	}
	if caller.SessionID != "" {
		if _, err := s.sessionByID(ctx, caller.SessionID); err != nil {
			return a, err
		}
	}
	if userID == "" || s.dir == nil {
		return a, nil
	}
	g, err := s.grantOf(ctx, userID, caller.OrganizationID)
	if err != nil {
		return a, err
	}
	a.lists = append(a.lists, g.scopes)
	return a, nil
}

// grant is what a user is in an organization.
type grant struct {
	roles  []string
	scopes Scopes
}

// grantOf returns what a user may do in an organization: nothing when the user
// is no member, ErrInvalidCredentials when there is no such user, or it is
// disabled.
func (s *Service) grantOf(ctx context.Context, userID, organizationID string) (grant, error) {
	return s.grants.load(userID+"\x00"+organizationID, s.cfg.Now(), func() (grant, error) {
		user, err := s.dir.User(ctx, userID)
		switch {
		case errors.Is(err, driver.ErrNotFound) || err == nil && !user.DisabledAt.IsZero():
			return grant{}, ErrInvalidCredentials
		case err != nil:
			return grant{}, fmt.Errorf("auth: read user: %w", err)
		}
		member, err := s.dir.MemberOf(ctx, organizationID, userID)
		switch {
		case errors.Is(err, driver.ErrNotFound):
			return grant{}, nil
		case err != nil:
			return grant{}, fmt.Errorf("auth: read membership: %w", err)
		}
		scopes, err := s.scopesOfRoles(ctx, organizationID, member.Roles)
		return grant{roles: member.Roles, scopes: scopes}, err
	})
}

// scopesOfRoles joins what roles allow. A role that is gone allows nothing.
func (s *Service) scopesOfRoles(ctx context.Context, organizationID string, names []string) (Scopes, error) {
	var scopes Scopes
	var own []string
	for _, name := range names {
		if list, ok := builtin[name]; ok {
			scopes = append(scopes, list...)
		} else {
			own = append(own, name)
		}
	}
	if len(own) == 0 {
		return scopes, nil
	}
	roles, err := s.dir.Roles(ctx, organizationID)
	if err != nil {
		return nil, fmt.Errorf("auth: read roles: %w", err)
	}
	for _, role := range roles {
		if slices.Contains(own, role.Name) {
			scopes = append(scopes, role.Permissions...)
		}
	}
	return scopes, nil
}

// SeveralOrganizations reports whether there are more than the default one.
func (s *Service) SeveralOrganizations(ctx context.Context) (bool, error) {
	if s.dir == nil {
		return false, nil
	}
	return s.several.load("", s.cfg.Now(), func() (bool, error) {
		n, err := s.dir.CountOrganizations(ctx)
		return n > 1, err
	})
}
