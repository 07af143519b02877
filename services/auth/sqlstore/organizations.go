package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/objecthost/objecthost/services/auth/driver"
	"github.com/objecthost/objecthost/storage"
)

type organizationRow struct {
	bun.BaseModel `bun:"table:sys_organization,alias:o"`

	ID        string `bun:"id,pk"`
	Name      string `bun:"name"`
	Slug      string `bun:"slug"`
	CreatedAt int64  `bun:"created_at"`
	UpdatedAt int64  `bun:"updated_at"`
}

func organizationRowOf(o driver.Organization) *organizationRow {
	return &organizationRow{ID: o.ID, Name: o.Name, Slug: o.Slug, CreatedAt: epoch(o.CreatedAt), UpdatedAt: epoch(o.UpdatedAt)}
}

func (r *organizationRow) organization() driver.Organization {
	return driver.Organization{ID: r.ID, Name: r.Name, Slug: r.Slug, CreatedAt: instant(r.CreatedAt), UpdatedAt: instant(r.UpdatedAt)}
}

// InsertOrganization implements driver.Organizations.
func (s *Store) InsertOrganization(ctx context.Context, o driver.Organization) error {
	_, err := s.db.Bun(ctx).NewInsert().Model(organizationRowOf(o)).Exec(ctx)
	return conflict(err)
}

// UpdateOrganization implements driver.Organizations.
func (s *Store) UpdateOrganization(ctx context.Context, o driver.Organization) error {
	return changed(s.db.Bun(ctx).NewUpdate().Model(organizationRowOf(o)).Column("name", "slug", "updated_at").WherePK().Exec(ctx))
}

// Organization implements driver.Organizations.
func (s *Store) Organization(ctx context.Context, id string) (driver.Organization, error) {
	var r organizationRow
	err := s.db.BunRead(ctx).NewSelect().Model(&r).Where("id = ?", id).Scan(ctx)
	return r.organization(), missing(err)
}

// OrganizationsOf implements driver.Organizations.
func (s *Store) OrganizationsOf(ctx context.Context, userID string) ([]driver.Organization, error) {
	var rows []organizationRow
	err := s.db.BunRead(ctx).NewSelect().Model(&rows).
		Join("JOIN sys_member AS m ON COALESCE(m.organization_id, 'default') = o.id").Where("m.user_id = ?", userID).
		OrderExpr("CASE WHEN m.organization_id IS NULL THEN 0 ELSE 1 END, m.created_at, o.id").Scan(ctx)
	out := make([]driver.Organization, len(rows))
	for i := range rows {
		out[i] = rows[i].organization()
	}
	return out, err
}

// CountOrganizations implements driver.Organizations.
func (s *Store) CountOrganizations(ctx context.Context) (int, error) {
	n, err := s.db.BunRead(ctx).NewSelect().Model((*organizationRow)(nil)).Count(ctx)
	return int(n), err
}

type memberRow struct {
	bun.BaseModel `bun:"table:sys_member,alias:m"`

	ID             string `bun:"id,pk"`
	OrganizationID string `bun:"organization_id,nullzero"`
	UserID         string `bun:"user_id"`
	Roles          string `bun:"roles"`
	CreatedAt      int64  `bun:"created_at"`
}

func memberRowOf(m driver.Member) (*memberRow, error) {
	roles, err := json.Marshal(m.Roles)
	return &memberRow{ID: m.ID, OrganizationID: m.OrganizationID, UserID: m.UserID, Roles: string(roles), CreatedAt: epoch(m.CreatedAt)}, err
}

func (r *memberRow) member() (driver.Member, error) {
	m := driver.Member{ID: r.ID, OrganizationID: r.OrganizationID, UserID: r.UserID, CreatedAt: instant(r.CreatedAt)}
	if err := json.Unmarshal([]byte(r.Roles), &m.Roles); err != nil {
		return driver.Member{}, fmt.Errorf("read roles of member %s: %w", r.ID, err)
	}
	return m, nil
}

// InsertMember implements driver.Organizations.
func (s *Store) InsertMember(ctx context.Context, m driver.Member) error {
	r, err := memberRowOf(m)
	if err != nil {
		return err
	}
	_, err = s.db.Bun(ctx).NewInsert().Model(r).Exec(ctx)
	return conflict(err)
}

// UpdateMember implements driver.Organizations.
func (s *Store) UpdateMember(ctx context.Context, m driver.Member) error {
	r, err := memberRowOf(m)
	if err != nil {
		return err
	}
	return changed(s.db.Bun(ctx).NewUpdate().Model(r).Column("roles").WherePK().
		Where("COALESCE(organization_id, '') = ?", m.OrganizationID).Exec(ctx))
}

// DeleteMember implements driver.Organizations.
func (s *Store) DeleteMember(ctx context.Context, organizationID, id string) error {
	return changed(s.db.Bun(ctx).NewDelete().Model((*memberRow)(nil)).Where("id = ?", id).
		Where("COALESCE(organization_id, '') = ?", organizationID).Exec(ctx))
}

// MemberOf implements driver.Organizations.
func (s *Store) MemberOf(ctx context.Context, organizationID, userID string) (driver.Member, error) {
	return s.oneMember(ctx, organizationID, "user_id = ?", userID)
}

// Member implements driver.Organizations.
func (s *Store) Member(ctx context.Context, organizationID, id string) (driver.Member, error) {
	return s.oneMember(ctx, organizationID, "id = ?", id)
}

func (s *Store) oneMember(ctx context.Context, organizationID, where string, arg any) (driver.Member, error) {
	var r memberRow
	err := s.db.BunRead(ctx).NewSelect().Model(&r).Where(where, arg).Where("COALESCE(organization_id, '') = ?", organizationID).Scan(ctx)
	if err != nil {
		return driver.Member{}, missing(err)
	}
	return r.member()
}

// Members implements driver.Organizations.
func (s *Store) Members(ctx context.Context, organizationID string) ([]driver.Member, error) {
	var rows []memberRow
	query := s.db.BunRead(ctx).NewSelect().Model(&rows).Where("COALESCE(organization_id, '') = ?", organizationID).Order("created_at", "id")
	if s.db.Dialect() == storage.Postgres && storage.InTransaction(ctx) {
		query = query.For("UPDATE")
	}
	if err := query.Scan(ctx); err != nil {
		return nil, err
	}
	out := make([]driver.Member, len(rows))
	for i := range rows {
		m, err := rows[i].member()
		if err != nil {
			return nil, err
		}
		out[i] = m
	}
	return out, nil
}

type roleRow struct {
	bun.BaseModel `bun:"table:sys_role,alias:r"`

	ID             string `bun:"id,pk"`
	OrganizationID string `bun:"organization_id,nullzero"`
	Name           string `bun:"name"`
	Label          string `bun:"label"`
	Permissions    string `bun:"permissions"`
	CreatedAt      int64  `bun:"created_at"`
	UpdatedAt      int64  `bun:"updated_at"`
}

// PutRole implements driver.Organizations.
func (s *Store) PutRole(ctx context.Context, role driver.Role) error {
	permissions, err := json.Marshal(role.Permissions)
	if err != nil {
		return err
	}
	_, err = s.db.Bun(ctx).NewInsert().Model(&roleRow{
		ID: role.ID, OrganizationID: role.OrganizationID, Name: role.Name, Label: cmp.Or(role.Label, role.Name),
		Permissions: string(permissions), CreatedAt: epoch(role.CreatedAt), UpdatedAt: epoch(role.UpdatedAt),
	}).On("CONFLICT (COALESCE(organization_id, ''), name) DO UPDATE").Set("label = EXCLUDED.label").
		Set("permissions = EXCLUDED.permissions").Set("updated_at = EXCLUDED.updated_at").Exec(ctx)
	return err
}

// DeleteRole implements driver.Organizations.
func (s *Store) DeleteRole(ctx context.Context, organizationID, name string) error {
	return changed(s.db.Bun(ctx).NewDelete().Model((*roleRow)(nil)).Where("name = ?", name).
		Where("COALESCE(organization_id, '') = ?", organizationID).Exec(ctx))
}

// Roles implements driver.Organizations.
func (s *Store) Roles(ctx context.Context, organizationID string) ([]driver.Role, error) {
	var rows []roleRow
	err := s.db.BunRead(ctx).NewSelect().Model(&rows).Where("COALESCE(organization_id, '') = ?", organizationID).Order("name").Scan(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]driver.Role, len(rows))
	for i, r := range rows {
		out[i] = driver.Role{
			ID: r.ID, OrganizationID: r.OrganizationID, Name: r.Name, Label: r.Label,
			CreatedAt: instant(r.CreatedAt), UpdatedAt: instant(r.UpdatedAt),
		}
		if err := json.Unmarshal([]byte(r.Permissions), &out[i].Permissions); err != nil {
			return nil, fmt.Errorf("read permissions of role %s: %w", r.Name, err)
		}
	}
	return out, nil
}
