package auth

import (
	"context"
	"errors"
	"fmt"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/auth/driver"
)

// Invite offers a membership in the caller's organization to whoever has the
// email address, in the place of an earlier offer. The answer does not tell
// whether anybody has it. The caller must hold [PermissionManageMembers] and all
// that the roles allow.
func (s *Service) Invite(ctx context.Context, email string, roles []string) (driver.Invitation, error) {
	if err := s.Has(ctx, PermissionManageMembers); err != nil {
		return driver.Invitation{}, err
	}
	email = normalEmail(email)
	if err := checkEmail(email); err != nil {
		return driver.Invitation{}, err
	}
	if len(roles) == 0 {
		return driver.Invitation{}, &InvalidError{Field: "role", Reason: "is required"}
	}
	caller, now := identity.From(ctx), millis(s.cfg.Now())
	if err := s.checkRoles(ctx, caller.OrganizationID, roles); err != nil {
		return driver.Invitation{}, err
	}
	i := driver.Invitation{
		ID: newLongID(), OrganizationID: caller.OrganizationID, Email: email, Roles: roles, InviterID: caller.UserID,
		CreatedAt: now, ExpiresAt: now.Add(invitationAge),
	}
	return i, s.dir.InTx(ctx, func(ctx context.Context) error {
		if err := s.dir.PutInvitation(ctx, i); err != nil {
			return fmt.Errorf("auth: store invitation: %w", err)
		}
		return s.note(ctx, "invitation.create", "invitation", i.ID, map[string]any{"email": email, "roles": roles})
	})
}

// Invitations returns the open ones of the caller's organization. The caller
// must hold [PermissionManageMembers].
func (s *Service) Invitations(ctx context.Context) ([]driver.Invitation, error) {
	if err := s.Has(ctx, PermissionManageMembers); err != nil {
		return nil, err
	}
	list, err := s.dir.InvitationsOf(ctx, identity.From(ctx).OrganizationID, s.cfg.Now())
	if err != nil {
		return nil, fmt.Errorf("auth: list invitations: %w", err)
	}
	return list, nil
}

// OwnInvitations returns the open ones for the principal's user.
func (s *Service) OwnInvitations(ctx context.Context) ([]driver.Invitation, error) {
	user, err := s.invitee(ctx)
	if err != nil {
		return nil, err
	}
	list, err := s.dir.InvitationsFor(ctx, user.Email, s.cfg.Now())
	if err != nil {
		return nil, fmt.Errorf("auth: list invitations: %w", err)
	}
	return list, nil
}

// invitee is the principal's user, who must be known to have the email address.
func (s *Service) invitee(ctx context.Context) (driver.User, error) {
	user, err := s.user(ctx, identity.From(ctx).UserID)
	if err == nil && !user.EmailVerified {
		err = ErrInvitationNotFound
	}
	return user, err
}

// AnswerInvitation accepts or declines an invitation of the principal's user.
// [ErrInvitationNotFound] for all others.
func (s *Service) AnswerInvitation(ctx context.Context, id string, accept bool) (driver.Invitation, error) {
	user, err := s.invitee(ctx)
	if err != nil {
		return driver.Invitation{}, err
	}
	var i driver.Invitation
	err = s.dir.InTx(ctx, func(ctx context.Context) (err error) {
		if i, err = s.dir.TakeInvitation(ctx, id, "", user.Email, s.cfg.Now()); err != nil {
			return invitationError(err)
		}
		if !accept {
			return s.noteIn(ctx, i.OrganizationID, "invitation.reject", i.ID, nil)
		}
		_, err = s.insertMember(ctx, i.OrganizationID, user.ID, i.Roles)
		return err
	})
	return i, err
}

// CancelInvitation takes an invitation of the caller's organization back. The
// caller must hold [PermissionManageMembers].
func (s *Service) CancelInvitation(ctx context.Context, id string) (driver.Invitation, error) {
	if err := s.Has(ctx, PermissionManageMembers); err != nil {
		return driver.Invitation{}, err
	}
	var i driver.Invitation
	err := s.dir.InTx(ctx, func(ctx context.Context) (err error) {
		if i, err = s.dir.TakeInvitation(ctx, id, identity.From(ctx).OrganizationID, "", s.cfg.Now()); err != nil {
			return invitationError(err)
		}
		return s.note(ctx, "invitation.cancel", "invitation", i.ID, nil)
	})
	return i, err
}

func invitationError(err error) error {
	if errors.Is(err, driver.ErrNotFound) {
		return ErrInvitationNotFound
	}
	return fmt.Errorf("auth: read invitation: %w", err)
}
