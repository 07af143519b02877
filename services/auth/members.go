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

// MemberView is a member and who it is.
type MemberView struct {
	driver.Member
	User driver.User
}

// Members returns the members of the caller's organization, which the caller
// must be allowed to list (sys_member).
func (s *Service) Members(ctx context.Context) ([]MemberView, error) {
	if err := s.Can(ctx, identity.OperationList, MemberObject); err != nil {
		return nil, err
	}
	if s.dir == nil {
		return nil, ErrNoUsers
	}
	members, err := s.dir.Members(ctx, identity.From(ctx).OrganizationID)
	if err != nil {
		return nil, fmt.Errorf("auth: list members: %w", err)
	}
	views := make([]MemberView, 0, len(members))
	for _, m := range members {
		user, err := s.user(ctx, m.UserID)
		if err != nil {
			return nil, err
		}
		views = append(views, MemberView{m, user})
	}
	return views, nil
}

// Self returns the membership of the principal's user in its organization.
func (s *Service) Self(ctx context.Context) (MemberView, error) {
	caller := identity.From(ctx)
	if caller.UserID == "" {
		return MemberView{}, ErrMemberNotFound
	}
	m, err := s.dir.MemberOf(ctx, caller.OrganizationID, caller.UserID)
	if err != nil {
		return MemberView{}, memberError(err)
	}
	user, err := s.user(ctx, m.UserID)
	return MemberView{m, user}, err
}

func memberError(err error) error {
	if errors.Is(err, driver.ErrNotFound) {
		return ErrMemberNotFound
	}
	return fmt.Errorf("auth: read member: %w", err)
}

// checkRoles refuses roles that the organization does not have, and those that
// allow more than the caller may.
func (s *Service) checkRoles(ctx context.Context, organizationID string, roles []string) error {
	if len(roles) == 0 {
		return nil
	}
	own, err := s.dir.Roles(ctx, organizationID)
	if err != nil {
		return fmt.Errorf("auth: read roles: %w", err)
	}
	for i, name := range roles {
		if slices.Contains(roles[:i], name) {
			return &InvalidError{Field: "role", Reason: fmt.Sprintf("names %q twice", name)}
		}
		if builtin[name] == nil && !slices.ContainsFunc(own, func(r driver.Role) bool { return r.Name == name }) {
			return ErrRoleNotFound
		}
	}
	return s.covers(ctx, organizationID, roles)
}

// covers is an *[ExceedsError] when roles allow more than the caller may.
func (s *Service) covers(ctx context.Context, organizationID string, roles []string) error {
	may, err := s.authorityOf(ctx)
	if err != nil {
		return err
	}
	scopes, err := s.scopesOfRoles(ctx, organizationID, roles)
	if err != nil {
		return err
	}
	if scope := may.lacking(scopes); scope != "" {
		return &ExceedsError{Scope: scope}
	}
	return nil
}

// insertMember adds a member in the transaction of ctx.
func (s *Service) insertMember(ctx context.Context, organizationID, userID string, roles []string) (driver.Member, error) {
	m := driver.Member{ID: newLongID(), OrganizationID: organizationID, UserID: userID, Roles: roles, CreatedAt: millis(s.cfg.Now())}
	switch err := s.dir.InsertMember(ctx, m); {
	case errors.Is(err, driver.ErrConflict):
		return driver.Member{}, ErrAlreadyMember
	case err != nil:
		return driver.Member{}, fmt.Errorf("auth: insert member: %w", err)
	}
	storage.AfterCommit(ctx, func(context.Context) { s.grants.forget() })
	return m, s.noteIn(ctx, organizationID, "member.add", m.ID, map[string]any{"userId": userID, "roles": roles})
}

// noteIn writes about a member into the log of the organization that it is
// about.
func (s *Service) noteIn(ctx context.Context, organizationID, action, id string, detail any) error {
	caller := identity.From(ctx)
	caller.OrganizationID = organizationID
	return s.note(identity.With(ctx, caller), action, "member", id, detail)
}

// AddMember makes a user a member of an organization. The caller must hold
// [PermissionManageUsers], because it learns that the user exists (others
// invite), and [PermissionManageOrganizations] for another organization than its
// own. Errors are [ErrUserNotFound],
// [ErrAlreadyMember], [ErrRoleNotFound] and *[ExceedsError].
func (s *Service) AddMember(ctx context.Context, organizationID, userID string, roles []string) (driver.Member, error) {
	if err := s.Has(ctx, PermissionManageUsers); err != nil {
		return driver.Member{}, err
	}
	if err := s.mayReachInto(ctx, organizationID); err != nil {
		return driver.Member{}, err
	}
	if len(roles) == 0 {
		return driver.Member{}, &InvalidError{Field: "role", Reason: "is required"}
	}
	var m driver.Member
	err := s.dir.InTx(ctx, func(ctx context.Context) (err error) {
		if _, err := s.organization(ctx, organizationID); err != nil {
			return err
		}
		if _, err := s.user(ctx, userID); err != nil {
			return err
		}
		if err := s.checkRoles(ctx, organizationID, roles); err != nil {
			return err
		}
		m, err = s.insertMember(ctx, organizationID, userID, roles)
		return err
	})
	return m, err
}

// change is a change of a member in a transaction that holds all members of the
// organization, so that two of them cannot take each other's rights at once.
func (s *Service) change(ctx context.Context, id string, do func(context.Context, driver.Member, []driver.Member) error) error {
	organizationID := identity.From(ctx).OrganizationID
	err := s.dir.InTx(ctx, func(ctx context.Context) error {
		all, err := s.dir.Members(ctx, organizationID)
		if err != nil {
			return fmt.Errorf("auth: read members: %w", err)
		}
		i := slices.IndexFunc(all, func(m driver.Member) bool { return m.ID == id })
		if i < 0 {
			return ErrMemberNotFound
		}
		return do(ctx, all[i], slices.Delete(slices.Clone(all), i, i+1))
	})
	if err == nil {
		storage.AfterCommit(ctx, func(context.Context) { s.grants.forget() })
	}
	return err
}

// anyAdmin is ErrLastAdmin when none of the members may do everything.
func anyAdmin(members ...driver.Member) error {
	for _, m := range members {
		if slices.Contains(m.Roles, RoleOwner) || slices.Contains(m.Roles, RoleAdmin) {
			return nil
		}
	}
	return ErrLastAdmin
}

// SetRoles changes what a member of the caller's organization is. The caller
// must hold [PermissionManageMembers], all that the member may do, and all that
// it is to be allowed. Errors are [ErrMemberNotFound], [ErrRoleNotFound],
// *[ExceedsError] and [ErrLastAdmin].
func (s *Service) SetRoles(ctx context.Context, memberID string, roles []string) (driver.Member, error) {
	if err := s.Has(ctx, PermissionManageMembers); err != nil {
		return driver.Member{}, err
	}
	if len(roles) == 0 {
		return driver.Member{}, &InvalidError{Field: "role", Reason: "is required"}
	}
	var out driver.Member
	err := s.change(ctx, memberID, func(ctx context.Context, m driver.Member, others []driver.Member) error {
		if err := s.covers(ctx, m.OrganizationID, m.Roles); err != nil {
			return err
		}
		if err := s.checkRoles(ctx, m.OrganizationID, roles); err != nil {
			return err
		}
		before := m.Roles
		m.Roles = roles
		if err := anyAdmin(append(others, m)...); err != nil {
			return err
		}
		if err := s.dir.UpdateMember(ctx, m); err != nil {
			return memberError(err)
		}
		out = m
		return s.note(ctx, "member.set_roles", "member", m.ID, map[string]any{"userId": m.UserID, "before": before, "roles": roles})
	})
	return out, err
}

// RemoveMember ends a membership in the caller's organization. Who removes
// somebody else must hold [PermissionManageMembers] and all that the member may
// do. Errors are [ErrMemberNotFound], *[ExceedsError] and [ErrLastAdmin].
func (s *Service) RemoveMember(ctx context.Context, memberID string) (driver.Member, error) {
	caller := identity.From(ctx)
	self, err := s.Self(ctx)
	if err != nil && !errors.Is(err, ErrMemberNotFound) {
		return driver.Member{}, err
	}
	leaves := err == nil && self.ID == memberID && caller.KeyID == ""
	if !leaves {
		if err := s.Has(ctx, PermissionManageMembers); err != nil {
			return driver.Member{}, err
		}
	}
	var out driver.Member
	err = s.change(ctx, memberID, func(ctx context.Context, m driver.Member, others []driver.Member) error {
		if !leaves {
			if err := s.covers(ctx, m.OrganizationID, m.Roles); err != nil {
				return err
			}
		}
		if anyAdmin(m) == nil {
			if err := anyAdmin(others...); err != nil {
				return err
			}
		}
		if err := s.dir.DeleteMember(ctx, m.OrganizationID, m.ID); err != nil {
			return memberError(err)
		}
		out = m
		return s.note(ctx, "member.remove", "member", m.ID, map[string]any{"userId": m.UserID, "roles": m.Roles})
	})
	return out, err
}
