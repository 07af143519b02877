package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/auth/driver"
	"github.com/objecthost/objecthost/storage"
)

// Roles returns the roles of the caller's organization, the built-in ones
// first. The caller must be allowed to list sys_role.
func (s *Service) Roles(ctx context.Context) ([]driver.Role, error) {
	if err := s.Can(ctx, identity.OperationList, RoleObject); err != nil {
		return nil, err
	}
	if s.dir == nil {
		return nil, ErrNoUsers
	}
	var list []driver.Role
	for _, name := range builtinOrder {
		list = append(list, driver.Role{Name: name, Label: name, Permissions: builtin[name]})
	}
	own, err := s.dir.Roles(ctx, identity.From(ctx).OrganizationID)
	if err != nil {
		return nil, fmt.Errorf("auth: list roles: %w", err)
	}
	return append(list, own...), nil
}

// PutRole makes a role of the caller's organization, or changes what the one of
// that name allows. The caller must hold [PermissionManageMembers] and all that
// the role allows, before and after. Errors are *[InvalidError], *[ScopeError]
// and *[ExceedsError].
func (s *Service) PutRole(ctx context.Context, name, label string, permissions Scopes) (driver.Role, error) {
	if err := s.Has(ctx, PermissionManageMembers); err != nil {
		return driver.Role{}, err
	}
	switch {
	case !roleForm.MatchString(name):
		return driver.Role{}, &InvalidError{Field: "role", Reason: "must be a lower-case letter and at most 49 of a-z, 0-9, _ and -"}
	case builtin[name] != nil:
		return driver.Role{}, &InvalidError{Field: "role", Reason: "is one of the built-in roles, which cannot be changed"}
	}
	if label != "" {
		if err := checkLabel("label", label, maxNameLength); err != nil {
			return driver.Role{}, err
		}
	}
	if err := permissions.Validate(); err != nil {
		return driver.Role{}, err
	}
	may, err := s.authorityOf(ctx)
	if err != nil {
		return driver.Role{}, err
	}
	if scope := may.lacking(permissions); scope != "" {
		return driver.Role{}, &ExceedsError{Scope: scope}
	}
	organizationID, now := identity.From(ctx).OrganizationID, millis(s.cfg.Now())
	role := driver.Role{
		ID: newLongID(), OrganizationID: organizationID, Name: name, Label: label, Permissions: permissions, CreatedAt: now, UpdatedAt: now,
	}
	err = s.dir.InTx(ctx, func(ctx context.Context) error {
		if err := s.covers(ctx, organizationID, []string{name}); err != nil {
			return err
		}
		if err := s.dir.PutRole(ctx, role); err != nil {
			return fmt.Errorf("auth: store role: %w", err)
		}
		return s.note(ctx, "role.put", "role", name, map[string]any{"permissions": permissions})
	})
	if err != nil {
		return driver.Role{}, err
	}
	storage.AfterCommit(ctx, func(context.Context) { s.grants.forget() })
	return role, nil
}

// DeleteRole removes a role of the caller's organization that no member has. The
// caller must hold [PermissionManageMembers]. Errors are [ErrRoleNotFound] and
// [ErrRoleInUse].
func (s *Service) DeleteRole(ctx context.Context, name string) error {
	if err := s.Has(ctx, PermissionManageMembers); err != nil {
		return err
	}
	organizationID := identity.From(ctx).OrganizationID
	return s.dir.InTx(ctx, func(ctx context.Context) error {
		members, err := s.dir.Members(ctx, organizationID)
		if err != nil {
			return fmt.Errorf("auth: read members: %w", err)
		}
		if slices.ContainsFunc(members, func(m driver.Member) bool { return slices.Contains(m.Roles, name) }) {
			return ErrRoleInUse
		}
		switch err := s.dir.DeleteRole(ctx, organizationID, name); {
		case errors.Is(err, driver.ErrNotFound):
			return ErrRoleNotFound
		case err != nil:
			return fmt.Errorf("auth: remove role: %w", err)
		}
		return s.note(ctx, "role.delete", "role", name, nil)
	})
}
