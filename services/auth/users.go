package auth

import (
	"context"
	"errors"
	"fmt"
	"net/mail"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/auth/driver"
	"github.com/objecthost/objecthost/storage"
)

// PermissionManageUsers is the permission for making, changing and shutting
// out users. Users belong to no organization, so that it reaches over all.
const PermissionManageUsers = "users.manage"

// providerPassword is the provider of accounts with a password.
const providerPassword = "credential"

const maxEmail = 254

// Errors about users.
var (
	// ErrEmailTaken is returned for an email address that a user has already.
	ErrEmailTaken = errors.New("auth: a user with this email address already exists")
	// ErrUserNotFound is returned for a user that there is not.
	ErrUserNotFound = errors.New("auth: user not found")
	// ErrWrongPassword is returned for a change of password without the
	// present one.
	ErrWrongPassword = errors.New("auth: the current password is wrong")
)

// NewUser describes a user to make.
type NewUser struct {
	Name, Email string
	// Password may be empty for a user who signs in at a provider.
	Password      string
	EmailVerified bool
	// OrganizationID is where the user becomes a member, "" for the default
	// organization, and Roles what it is there. Without roles it becomes none.
	OrganizationID string
	Roles          []string
}

// normalEmail is how email addresses are compared.
func normalEmail(email string) string { return strings.ToLower(strings.TrimSpace(email)) }

func checkEmail(email string) error {
	address, err := mail.ParseAddress(email)
	if err != nil || address.Address != email || len(email) > maxEmail || !strings.Contains(email, "@") {
		return &InvalidError{Field: "email", Reason: "must be an email address"}
	}
	return nil
}

func checkLabel(field, text string, most int) error {
	switch {
	case strings.TrimSpace(text) == "":
		return &InvalidError{Field: field, Reason: "is required"}
	case !utf8.ValidString(text):
		return &InvalidError{Field: field, Reason: "must be valid UTF-8"}
	case utf8.RuneCountInString(text) > most:
		return &InvalidError{Field: field, Reason: fmt.Sprintf("must be at most %d characters", most)}
	case strings.ContainsFunc(text, unicode.IsControl):
		return &InvalidError{Field: field, Reason: "must not contain control characters"}
	}
	return nil
}

// CreateUser makes a user. The caller must hold [PermissionManageUsers], and
// [PermissionManageOrganizations] for another organization than its own. Errors
// are *[InvalidError], [ErrEmailTaken], [ErrRoleNotFound],
// [ErrOrganizationNotFound], *[ExceedsError] for roles that allow more than the
// caller may, and those of Has.
func (s *Service) CreateUser(ctx context.Context, in NewUser) (driver.User, error) {
	if err := s.Has(ctx, PermissionManageUsers); err != nil {
		return driver.User{}, err
	}
	if err := s.mayReachInto(ctx, in.OrganizationID); err != nil {
		return driver.User{}, err
	}
	hash, err := s.settleUser(ctx, &in)
	if err != nil {
		return driver.User{}, err
	}
	var user driver.User
	err = s.dir.InTx(ctx, func(ctx context.Context) (err error) {
		if in.OrganizationID != "" {
			if _, err := s.organization(ctx, in.OrganizationID); err != nil {
				return err
			}
		}
		if err := s.checkRoles(ctx, in.OrganizationID, in.Roles); err != nil {
			return err
		}
		user, err = s.insertUser(ctx, in, hash)
		return err
	})
	return user, err
}

// settleUser checks what is to become a user and hashes the password.
func (s *Service) settleUser(ctx context.Context, in *NewUser) (hash string, err error) {
	if s.dir == nil {
		return "", ErrNoUsers
	}
	in.Email = normalEmail(in.Email)
	if in.Name == "" {
		in.Name, _, _ = strings.Cut(in.Email, "@")
	}
	if err := checkEmail(in.Email); err != nil {
		return "", err
	}
	if err := checkLabel("name", in.Name, maxNameLength); err != nil {
		return "", err
	}
	if in.Password == "" {
		return "", nil
	}
	if err := checkPassword(in.Password); err != nil {
		return "", err
	}
	return s.hasher.hash(ctx, in.Password)
}

// insertUser writes a user, its account and its membership, with entries in the
// audit log, in the transaction of ctx.
func (s *Service) insertUser(ctx context.Context, in NewUser, hash string) (driver.User, error) {
	now := millis(s.cfg.Now())
	user := driver.User{ID: newLongID(), Name: in.Name, Email: in.Email, EmailVerified: in.EmailVerified, CreatedAt: now, UpdatedAt: now}
	switch err := s.dir.InsertUser(ctx, user); {
	case errors.Is(err, driver.ErrConflict):
		return driver.User{}, ErrEmailTaken
	case err != nil:
		return driver.User{}, fmt.Errorf("auth: insert user: %w", err)
	}
	if hash != "" {
		if err := s.putPassword(ctx, user.ID, hash); err != nil {
			return driver.User{}, err
		}
	}
	if err := s.note(ctx, "user.create", "user", user.ID, nil); err != nil {
		return driver.User{}, fmt.Errorf("auth: write audit log: %w", err)
	}
	if len(in.Roles) == 0 {
		return user, nil
	}
	_, err := s.insertMember(ctx, in.OrganizationID, user.ID, in.Roles)
	return user, err
}

func (s *Service) putPassword(ctx context.Context, userID, hash string) error {
	now := millis(s.cfg.Now())
	err := s.dir.PutAccount(ctx, driver.Account{
		ID: newLongID(), UserID: userID, Provider: providerPassword, Subject: userID, PasswordHash: hash, CreatedAt: now, UpdatedAt: now,
	})
	if err != nil {
		return fmt.Errorf("auth: store password: %w", err)
	}
	return nil
}

// Users returns a page of all users in the order of their email addresses, and
// how many there are. The caller must hold [PermissionManageUsers].
func (s *Service) Users(ctx context.Context, limit, offset int) ([]driver.User, int, error) {
	if err := s.Has(ctx, PermissionManageUsers); err != nil {
		return nil, 0, err
	}
	users, total, err := s.dir.UsersOf(ctx, "", true, limit, offset)
	if err != nil {
		return nil, 0, fmt.Errorf("auth: list users: %w", err)
	}
	return users, total, nil
}

// user finds a user.
func (s *Service) user(ctx context.Context, id string) (driver.User, error) {
	user, err := s.dir.User(ctx, id)
	switch {
	case errors.Is(err, driver.ErrNotFound):
		return driver.User{}, ErrUserNotFound
	case err != nil:
		return driver.User{}, fmt.Errorf("auth: read user: %w", err)
	}
	return user, nil
}

// mayManage lets a manager of users only at users who may do no more than
// itself, in whatever organization: else it could become them.
func (s *Service) mayManage(ctx context.Context, userID string) error {
	if err := s.Has(ctx, PermissionManageUsers); err != nil {
		return err
	}
	may, err := s.authorityOf(ctx)
	if err != nil {
		return err
	}
	belongs, err := s.dir.OrganizationsOf(ctx, userID)
	if err != nil {
		return fmt.Errorf("auth: read memberships: %w", err)
	}
	for _, o := range belongs {
		id := internalOrganization(o.ID)
		member, err := s.dir.MemberOf(ctx, id, userID)
		if errors.Is(err, driver.ErrNotFound) {
			continue // left in between
		}
		if err != nil {
			return fmt.Errorf("auth: read membership: %w", err)
		}
		scopes, err := s.scopesOfRoles(ctx, id, member.Roles)
		if err != nil {
			return err
		}
		if scope := may.lacking(scopes); scope != "" {
			return &ExceedsError{Scope: scope}
		}
	}
	return nil
}

// mayReachInto asks for the permission to let people into an organization other
// than the caller's own: whoever may do that can let themselves in.
func (s *Service) mayReachInto(ctx context.Context, organizationID string) error {
	if organizationID == identity.From(ctx).OrganizationID {
		return nil
	}
	return s.Has(ctx, PermissionManageOrganizations)
}

// SetPassword gives a user another password and ends its sessions. The caller
// must hold [PermissionManageUsers], and all that the user may do.
func (s *Service) SetPassword(ctx context.Context, userID, password string) error {
	if err := s.mayManage(ctx, userID); err != nil {
		return err
	}
	if err := checkPassword(password); err != nil {
		return err
	}
	hash, err := s.hasher.hash(ctx, password)
	if err != nil {
		return err
	}
	return s.dir.InTx(ctx, func(ctx context.Context) error {
		if _, err := s.user(ctx, userID); err != nil {
			return err
		}
		if err := s.putPassword(ctx, userID, hash); err != nil {
			return err
		}
		if err := s.endSessions(ctx, userID, ""); err != nil {
			return err
		}
		return s.note(ctx, "user.set_password", "user", userID, nil)
	})
}

// ChangePassword gives the principal's user another password, which ends its
// other sessions. Wrong guesses of the present one count like sign-ins. Errors
// are [ErrWrongPassword], *[ThrottledError] and *[InvalidError].
func (s *Service) ChangePassword(ctx context.Context, current, password string) error {
	caller := identity.From(ctx)
	user, err := s.user(ctx, caller.UserID)
	if err != nil {
		return err
	}
	if err := s.attempt(ctx, user.Email, clientOf(ctx).IP); err != nil {
		return err
	}
	account, err := s.dir.Account(ctx, providerPassword, user.ID)
	if err != nil && !errors.Is(err, driver.ErrNotFound) {
		return fmt.Errorf("auth: look up account: %w", err)
	}
	match, _, err := s.hasher.compare(ctx, account.PasswordHash, current)
	switch {
	case err != nil:
		return err
	case !match:
		return ErrWrongPassword
	}
	if err := checkPassword(password); err != nil {
		return err
	}
	hash, err := s.hasher.hash(ctx, password)
	if err != nil {
		return err
	}
	return s.dir.InTx(ctx, func(ctx context.Context) error {
		if err := s.putPassword(ctx, user.ID, hash); err != nil {
			return err
		}
		if err := s.dir.Forget(ctx, emailKey(user.Email)); err != nil {
			return err
		}
		if err := s.endSessions(ctx, user.ID, caller.SessionID); err != nil {
			return err
		}
		return s.note(ctx, "user.change_password", "user", user.ID, nil)
	})
}

// Rename changes the name and the image of the principal's user; nil leaves one
// as it is.
func (s *Service) Rename(ctx context.Context, name, image *string) (driver.User, error) {
	user, err := s.user(ctx, identity.From(ctx).UserID)
	if err != nil {
		return driver.User{}, err
	}
	if name != nil {
		if err := checkLabel("name", *name, maxNameLength); err != nil {
			return driver.User{}, err
		}
		user.Name = *name
	}
	if image != nil {
		if *image != "" {
			if err := checkLabel("image", *image, 2048); err != nil {
				return driver.User{}, err
			}
		}
		user.Image = *image
	}
	user.UpdatedAt = millis(s.cfg.Now())
	if err := s.dir.UpdateUser(ctx, user); err != nil {
		return driver.User{}, fmt.Errorf("auth: change user: %w", err)
	}
	return user, nil
}

// SetDisabled shuts a user out, which ends its sessions and what its keys may
// do, or lets it in again. The caller must hold [PermissionManageUsers], and all
// that the user may do; nobody shuts themselves out.
func (s *Service) SetDisabled(ctx context.Context, userID string, disabled bool) (driver.User, error) {
	if err := s.mayManage(ctx, userID); err != nil {
		return driver.User{}, err
	}
	if disabled && userID == identity.From(ctx).UserID {
		return driver.User{}, &InvalidError{Field: "userId", Reason: "is your own"}
	}
	var user driver.User
	err := s.dir.InTx(ctx, func(ctx context.Context) (err error) {
		if user, err = s.user(ctx, userID); err != nil {
			return err
		}
		now, action := millis(s.cfg.Now()), "user.enable"
		user.DisabledAt, user.UpdatedAt = time.Time{}, now
		if disabled {
			user.DisabledAt, action = now, "user.disable"
			if err := s.endSessions(ctx, userID, ""); err != nil {
				return err
			}
		}
		if err := s.dir.UpdateUser(ctx, user); err != nil {
			return fmt.Errorf("auth: change user: %w", err)
		}
		return s.note(ctx, action, "user", userID, nil)
	})
	if err == nil {
		storage.AfterCommit(ctx, func(context.Context) { s.grants.forget() })
	}
	return user, err
}
