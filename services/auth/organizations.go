package auth

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/auth/driver"
	"github.com/objecthost/objecthost/storage"
)

// The permissions for organizations. Making one reaches over all of them;
// members are those of the caller's own organization.
const (
	PermissionManageOrganizations = "organizations.manage"
	PermissionManageMembers       = "members.manage"
)

// invitationAge is how long an invitation can be accepted.
const invitationAge = 7 * 24 * time.Hour

// Errors about organizations. What belongs to another organization is not
// found, exactly as what does not exist.
var (
	ErrOrganizationNotFound = errors.New("auth: organization not found")
	ErrMemberNotFound       = errors.New("auth: member not found")
	ErrRoleNotFound         = errors.New("auth: role not found")
	ErrInvitationNotFound   = errors.New("auth: invitation not found")
	// ErrSlugTaken is returned for a slug that another organization has.
	ErrSlugTaken = errors.New("auth: an organization with this slug already exists")
	// ErrAlreadyMember is returned for a user who is a member already.
	ErrAlreadyMember = errors.New("auth: the user is a member already")
	// ErrLastAdmin is returned for a change that would leave an organization
	// without a member who may do everything.
	ErrLastAdmin = errors.New("auth: the organization would have no administrator left")
	// ErrRoleInUse is returned for a role that members have.
	ErrRoleInUse = errors.New("auth: members have this role")
)

var (
	slugForm = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$`)
	roleForm = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,49}$`)
)

// organization finds an organization by its public id.
func (s *Service) organization(ctx context.Context, id string) (driver.Organization, error) {
	o, err := s.dir.Organization(ctx, publicOrganization(id))
	switch {
	case errors.Is(err, driver.ErrNotFound):
		return driver.Organization{}, ErrOrganizationNotFound
	case err != nil:
		return driver.Organization{}, fmt.Errorf("auth: read organization: %w", err)
	}
	return o, nil
}

// CreateOrganization makes an organization. The caller must hold
// [PermissionManageOrganizations]; a user becomes its owner. Errors are
// *[InvalidError] and [ErrSlugTaken].
func (s *Service) CreateOrganization(ctx context.Context, name, slug string) (driver.Organization, error) {
	if err := s.Has(ctx, PermissionManageOrganizations); err != nil {
		return driver.Organization{}, err
	}
	if s.dir == nil {
		return driver.Organization{}, ErrNoUsers
	}
	if err := checkOrganization(name, slug); err != nil {
		return driver.Organization{}, err
	}
	now := millis(s.cfg.Now())
	o := driver.Organization{ID: newLongID(), Name: name, Slug: slug, CreatedAt: now, UpdatedAt: now}
	caller := identity.From(ctx)
	err := s.dir.InTx(ctx, func(ctx context.Context) error {
		switch err := s.dir.InsertOrganization(ctx, o); {
		case errors.Is(err, driver.ErrConflict):
			return ErrSlugTaken
		case err != nil:
			return fmt.Errorf("auth: insert organization: %w", err)
		}
		if err := s.note(ctx, "organization.create", "organization", o.ID, map[string]any{"name": name, "slug": slug}); err != nil {
			return err
		}
		if caller.UserID == "" {
			return nil
		}
		_, err := s.insertMember(ctx, o.ID, caller.UserID, []string{RoleOwner})
		return err
	})
	if err != nil {
		return driver.Organization{}, err
	}
	storage.AfterCommit(ctx, func(context.Context) { s.several.forget() })
	return o, nil
}

func checkOrganization(name, slug string) error {
	if err := checkLabel("name", name, maxNameLength); err != nil {
		return err
	}
	if !slugForm.MatchString(slug) {
		return &InvalidError{Field: "slug", Reason: "must be 1 to 63 of a-z, 0-9 and -, without - at either end"}
	}
	return nil
}

// UpdateOrganization changes the name and slug of the caller's organization;
// "" leaves one as it is. The caller must hold [PermissionManageMembers].
func (s *Service) UpdateOrganization(ctx context.Context, name, slug string) (driver.Organization, error) {
	if err := s.Has(ctx, PermissionManageMembers); err != nil {
		return driver.Organization{}, err
	}
	var o driver.Organization
	err := s.dir.InTx(ctx, func(ctx context.Context) (err error) {
		if o, err = s.organization(ctx, identity.From(ctx).OrganizationID); err != nil {
			return err
		}
		if name != "" {
			o.Name = name
		}
		if slug != "" {
			o.Slug = slug
		}
		if err := checkOrganization(o.Name, o.Slug); err != nil {
			return err
		}
		o.UpdatedAt = millis(s.cfg.Now())
		switch err := s.dir.UpdateOrganization(ctx, o); {
		case errors.Is(err, driver.ErrConflict):
			return ErrSlugTaken
		case err != nil:
			return fmt.Errorf("auth: change organization: %w", err)
		}
		return s.note(ctx, "organization.update", "organization", o.ID, map[string]any{"name": o.Name, "slug": o.Slug})
	})
	return o, err
}

// Organizations returns those that the principal's user is a member of.
func (s *Service) Organizations(ctx context.Context) ([]driver.Organization, error) {
	caller := identity.From(ctx)
	if caller.UserID == "" {
		// A key without a user knows the organization that it acts in.
		o, err := s.organization(ctx, caller.OrganizationID)
		if err != nil {
			return nil, err
		}
		return []driver.Organization{o}, nil
	}
	list, err := s.dir.OrganizationsOf(ctx, caller.UserID)
	if err != nil {
		return nil, fmt.Errorf("auth: list organizations: %w", err)
	}
	if caller.KeyID != "" {
		list = slices.DeleteFunc(list, func(o driver.Organization) bool { return o.ID != publicOrganization(caller.OrganizationID) })
	}
	return list, nil
}

// Activate makes the principal's session act in another organization that its
// user is a member of; others are [ErrOrganizationNotFound].
func (s *Service) Activate(ctx context.Context, organizationID string) (driver.Organization, error) {
	caller := identity.From(ctx)
	if caller.SessionID == "" {
		return driver.Organization{}, ErrSessionNotFound
	}
	id := internalOrganization(organizationID)
	if _, err := s.dir.MemberOf(ctx, id, caller.UserID); errors.Is(err, driver.ErrNotFound) {
		return driver.Organization{}, ErrOrganizationNotFound
	} else if err != nil {
		return driver.Organization{}, fmt.Errorf("auth: read membership: %w", err)
	}
	o, err := s.organization(ctx, id)
	if err != nil {
		return driver.Organization{}, err
	}
	if err := s.dir.Activate(ctx, caller.SessionID, id); err != nil {
		return driver.Organization{}, fmt.Errorf("auth: change session: %w", err)
	}
	storage.AfterCommit(ctx, func(context.Context) { s.sessions.forget() })
	return o, nil
}
