package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/uptrace/bun"

	"github.com/objecthost/objecthost/services/auth/driver"
	"github.com/objecthost/objecthost/storage"
)

var _ driver.Directory = (*Store)(nil)

// InTx implements driver.Directory.
func (s *Store) InTx(ctx context.Context, fn func(ctx context.Context) error) error {
	return s.db.InTx(ctx, fn)
}

type userRow struct {
	bun.BaseModel `bun:"table:sys_user,alias:u"`

	ID            string `bun:"id,pk"`
	Name          string `bun:"name"`
	Email         string `bun:"email"`
	EmailVerified bool   `bun:"email_verified"`
	Image         string `bun:"image,nullzero"`
	DisabledAt    int64  `bun:"disabled_at,nullzero"`
	CreatedAt     int64  `bun:"created_at"`
	UpdatedAt     int64  `bun:"updated_at"`
}

func userRowOf(u driver.User) *userRow {
	return &userRow{
		ID: u.ID, Name: u.Name, Email: u.Email, EmailVerified: u.EmailVerified, Image: u.Image,
		DisabledAt: epoch(u.DisabledAt), CreatedAt: epoch(u.CreatedAt), UpdatedAt: epoch(u.UpdatedAt),
	}
}

func (r *userRow) user() driver.User {
	return driver.User{
		ID: r.ID, Name: r.Name, Email: r.Email, EmailVerified: r.EmailVerified, Image: r.Image,
		DisabledAt: instant(r.DisabledAt), CreatedAt: instant(r.CreatedAt), UpdatedAt: instant(r.UpdatedAt),
	}
}

// conflict turns a unique violation into the error that callers test for.
func conflict(err error) error {
	if _, ok := storage.IsUniqueViolation(err); ok {
		return driver.ErrConflict
	}
	return err
}

// missing turns an empty result into the error that callers test for.
func missing(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return driver.ErrNotFound
	}
	return err
}

// changed is driver.ErrNotFound when a statement met no row.
func changed(result sql.Result, err error) error {
	if err != nil {
		return conflict(err)
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		return driver.ErrNotFound
	}
	return err
}

// InsertUser implements driver.Users.
func (s *Store) InsertUser(ctx context.Context, u driver.User) error {
	_, err := s.db.Bun(ctx).NewInsert().Model(userRowOf(u)).Exec(ctx)
	return conflict(err)
}

// UpdateUser implements driver.Users.
func (s *Store) UpdateUser(ctx context.Context, u driver.User) error {
	return changed(s.db.Bun(ctx).NewUpdate().Model(userRowOf(u)).
		Column("name", "image", "email", "disabled_at", "updated_at").WherePK().Exec(ctx))
}

// User implements driver.Users.
func (s *Store) User(ctx context.Context, id string) (driver.User, error) {
	return s.oneUser(ctx, "id = ?", id)
}

// UserByEmail implements driver.Users.
func (s *Store) UserByEmail(ctx context.Context, email string) (driver.User, error) {
	return s.oneUser(ctx, "email = ?", email)
}

func (s *Store) oneUser(ctx context.Context, where string, arg any) (driver.User, error) {
	var r userRow
	err := s.db.BunRead(ctx).NewSelect().Model(&r).Where(where, arg).Scan(ctx)
	return r.user(), missing(err)
}

// UsersOf implements driver.Users.
func (s *Store) UsersOf(ctx context.Context, organizationID string, everywhere bool, limit, offset int) ([]driver.User, int, error) {
	var rows []userRow
	query := s.db.BunRead(ctx).NewSelect().Model(&rows).Order("email").Limit(int64(limit)).Offset(int64(offset))
	if !everywhere {
		query = query.Where("id IN (SELECT user_id FROM sys_member WHERE COALESCE(organization_id, '') = ?)", organizationID)
	}
	total, err := query.ScanAndCount(ctx)
	users := make([]driver.User, len(rows))
	for i := range rows {
		users[i] = rows[i].user()
	}
	return users, int(total), err
}

// AnyUser implements driver.Users. The table lock conflicts with itself and with
// writers, not with readers.
func (s *Store) AnyUser(ctx context.Context) (bool, error) {
	db := s.db.Bun(ctx)
	if s.db.Dialect() == storage.Postgres && storage.InTransaction(ctx) {
		if _, err := db.ExecContext(ctx, "LOCK TABLE sys_user IN SHARE ROW EXCLUSIVE MODE"); err != nil {
			return false, err
		}
	}
	return db.NewSelect().Model((*userRow)(nil)).Exists(ctx)
}

type accountRow struct {
	bun.BaseModel `bun:"table:sys_account,alias:a"`

	ID           string `bun:"id,pk"`
	UserID       string `bun:"user_id"`
	Provider     string `bun:"provider"`
	Subject      string `bun:"subject"`
	PasswordHash string `bun:"password_hash,nullzero"`
	CreatedAt    int64  `bun:"created_at"`
	UpdatedAt    int64  `bun:"updated_at"`
}

// PutAccount implements driver.Users.
func (s *Store) PutAccount(ctx context.Context, a driver.Account) error {
	_, err := s.db.Bun(ctx).NewInsert().Model(&accountRow{
		ID: a.ID, UserID: a.UserID, Provider: a.Provider, Subject: a.Subject, PasswordHash: a.PasswordHash,
		CreatedAt: epoch(a.CreatedAt), UpdatedAt: epoch(a.UpdatedAt),
	}).On("CONFLICT (provider, subject) DO UPDATE").Set("password_hash = EXCLUDED.password_hash").
		Set("updated_at = EXCLUDED.updated_at").Exec(ctx)
	return err
}

// Account implements driver.Users.
func (s *Store) Account(ctx context.Context, provider, subject string) (driver.Account, error) {
	var r accountRow
	err := s.db.BunRead(ctx).NewSelect().Model(&r).Where("provider = ?", provider).Where("subject = ?", subject).Scan(ctx)
	return driver.Account{
		ID: r.ID, UserID: r.UserID, Provider: r.Provider, Subject: r.Subject, PasswordHash: r.PasswordHash,
		CreatedAt: instant(r.CreatedAt), UpdatedAt: instant(r.UpdatedAt),
	}, missing(err)
}

type sessionRow struct {
	bun.BaseModel `bun:"table:sys_session,alias:s"`

	ID             string `bun:"id,pk"`
	UserID         string `bun:"user_id"`
	TokenHash      string `bun:"token_hash"`
	OrganizationID string `bun:"organization_id,nullzero"`
	IP             string `bun:"ip"`
	UserAgent      string `bun:"user_agent"`
	CreatedAt      int64  `bun:"created_at"`
	UpdatedAt      int64  `bun:"updated_at"`
	ExpiresAt      int64  `bun:"expires_at"`
}

func (r *sessionRow) session() driver.Session {
	return driver.Session{
		ID: r.ID, UserID: r.UserID, TokenHash: r.TokenHash, OrganizationID: r.OrganizationID, IP: r.IP, UserAgent: r.UserAgent,
		CreatedAt: instant(r.CreatedAt), UpdatedAt: instant(r.UpdatedAt), ExpiresAt: instant(r.ExpiresAt),
	}
}

// InsertSession implements driver.Sessions.
func (s *Store) InsertSession(ctx context.Context, v driver.Session) error {
	_, err := s.db.Bun(ctx).NewInsert().Model(&sessionRow{
		ID: v.ID, UserID: v.UserID, TokenHash: v.TokenHash, OrganizationID: v.OrganizationID, IP: v.IP, UserAgent: v.UserAgent,
		CreatedAt: epoch(v.CreatedAt), UpdatedAt: epoch(v.UpdatedAt), ExpiresAt: epoch(v.ExpiresAt),
	}).Exec(ctx)
	return err
}

// SessionByHash implements driver.Sessions.
func (s *Store) SessionByHash(ctx context.Context, hash string) (driver.Session, error) {
	return s.oneSession(ctx, "token_hash = ?", hash)
}

// SessionByID implements driver.Sessions.
func (s *Store) SessionByID(ctx context.Context, id string) (driver.Session, error) {
	return s.oneSession(ctx, "id = ?", id)
}

func (s *Store) oneSession(ctx context.Context, where string, arg any) (driver.Session, error) {
	var r sessionRow
	err := s.db.BunRead(ctx).NewSelect().Model(&r).Where(where, arg).Scan(ctx)
	return r.session(), missing(err)
}

// SessionsOf implements driver.Sessions.
func (s *Store) SessionsOf(ctx context.Context, userID string, now time.Time) ([]driver.Session, error) {
	var rows []sessionRow
	err := s.db.BunRead(ctx).NewSelect().Model(&rows).Where("user_id = ?", userID).Where("expires_at > ?", epoch(now)).
		Order("created_at", "id").Scan(ctx)
	out := make([]driver.Session, len(rows))
	for i := range rows {
		out[i] = rows[i].session()
	}
	return out, err
}

// Activate implements driver.Sessions.
func (s *Store) Activate(ctx context.Context, id, organizationID string) error {
	return changed(s.db.Bun(ctx).NewUpdate().Model((*sessionRow)(nil)).Set("organization_id = NULLIF(?, '')", organizationID).
		Where("id = ?", id).Exec(ctx))
}

// Extend implements driver.Sessions.
func (s *Store) Extend(ctx context.Context, id string, at, expires time.Time) error {
	return changed(s.db.Bun(ctx).NewUpdate().Model((*sessionRow)(nil)).Set("updated_at = ?", epoch(at)).
		Set("expires_at = ?", epoch(expires)).Where("id = ?", id).Exec(ctx))
}

// EndSession implements driver.Sessions.
func (s *Store) EndSession(ctx context.Context, userID, id string) error {
	return changed(s.db.Bun(ctx).NewDelete().Model((*sessionRow)(nil)).Where("id = ?", id).Where("user_id = ?", userID).Exec(ctx))
}

// EndSessions implements driver.Sessions.
func (s *Store) EndSessions(ctx context.Context, userID, except string) (ids []string, err error) {
	err = s.db.Bun(ctx).NewDelete().Model((*sessionRow)(nil)).Where("user_id = ?", userID).Where("id <> ?", except).
		Returning("id").Scan(ctx, &ids)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return ids, err
}
