package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/objecthost/objecthost/services/auth/driver"
)

type invitationRow struct {
	bun.BaseModel `bun:"table:sys_invitation,alias:i"`

	ID             string `bun:"id,pk"`
	OrganizationID string `bun:"organization_id,nullzero"`
	Email          string `bun:"email"`
	Roles          string `bun:"roles"`
	InviterID      string `bun:"inviter_id,nullzero"`
	CreatedAt      int64  `bun:"created_at"`
	ExpiresAt      int64  `bun:"expires_at"`
}

func (r *invitationRow) invitation() (driver.Invitation, error) {
	i := driver.Invitation{
		ID: r.ID, OrganizationID: r.OrganizationID, Email: r.Email, InviterID: r.InviterID,
		CreatedAt: instant(r.CreatedAt), ExpiresAt: instant(r.ExpiresAt),
	}
	if err := json.Unmarshal([]byte(r.Roles), &i.Roles); err != nil {
		return driver.Invitation{}, fmt.Errorf("read roles of invitation %s: %w", r.ID, err)
	}
	return i, nil
}

// PutInvitation implements driver.Invitations.
func (s *Store) PutInvitation(ctx context.Context, i driver.Invitation) error {
	roles, err := json.Marshal(i.Roles)
	if err != nil {
		return err
	}
	db := s.db.Bun(ctx)
	_, err = db.NewDelete().Model((*invitationRow)(nil)).Where("email = ?", i.Email).
		Where("COALESCE(organization_id, '') = ?", i.OrganizationID).Exec(ctx)
	if err != nil {
		return err
	}
	_, err = db.NewInsert().Model(&invitationRow{
		ID: i.ID, OrganizationID: i.OrganizationID, Email: i.Email, Roles: string(roles), InviterID: i.InviterID,
		CreatedAt: epoch(i.CreatedAt), ExpiresAt: epoch(i.ExpiresAt),
	}).Exec(ctx)
	return conflict(err)
}

// InvitationsOf implements driver.Invitations.
func (s *Store) InvitationsOf(ctx context.Context, organizationID string, now time.Time) ([]driver.Invitation, error) {
	return s.invitations(ctx, now, "COALESCE(organization_id, '') = ?", organizationID)
}

// InvitationsFor implements driver.Invitations.
func (s *Store) InvitationsFor(ctx context.Context, email string, now time.Time) ([]driver.Invitation, error) {
	return s.invitations(ctx, now, "email = ?", email)
}

func (s *Store) invitations(ctx context.Context, now time.Time, where string, arg any) ([]driver.Invitation, error) {
	var rows []invitationRow
	err := s.db.BunRead(ctx).NewSelect().Model(&rows).Where(where, arg).Where("expires_at > ?", epoch(now)).Order("created_at", "id").Scan(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]driver.Invitation, len(rows))
	for i := range rows {
		if out[i], err = rows[i].invitation(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// TakeInvitation implements driver.Invitations.
func (s *Store) TakeInvitation(ctx context.Context, id, organizationID, email string, now time.Time) (driver.Invitation, error) {
	var r invitationRow
	query := s.db.Bun(ctx).NewDelete().Model(&r).Where("id = ?", id).Where("expires_at > ?", epoch(now)).Returning("*")
	if email != "" {
		query = query.Where("email = ?", email)
	} else {
		query = query.Where("COALESCE(organization_id, '') = ?", organizationID)
	}
	if err := query.Scan(ctx); err != nil {
		return driver.Invitation{}, missing(err)
	}
	return r.invitation()
}
