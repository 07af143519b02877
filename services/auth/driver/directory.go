package driver

import (
	"context"
	"errors"
	"time"
)

// User is a row of sys_user.
type User struct {
	// ID has 32 characters.
	ID   string
	Name string
	// Email is in lower case and unique.
	Email         string
	EmailVerified bool
	Image         string
	// DisabledAt is when the user was shut out, zero for users who may sign in.
	DisabledAt           time.Time
	CreatedAt, UpdatedAt time.Time
}

// Account is a way in which a user signs in.
type Account struct {
	ID, UserID string
	// Provider is "credential" for a password, else an OpenID Connect
	// provider's id; Subject is the user there, or the user's id for a password.
	Provider, Subject string
	// PasswordHash is a PHC string, "" for other providers.
	PasswordHash         string
	CreatedAt, UpdatedAt time.Time
}

// Session is a row of sys_session.
type Session struct {
	ID, UserID string
	// TokenHash is the hex SHA-256 of the session's token.
	TokenHash string
	// OrganizationID is the one that the session acts in, "" for the default
	// one.
	OrganizationID string
	IP, UserAgent  string
	// UpdatedAt moves when ExpiresAt is put off.
	CreatedAt, UpdatedAt, ExpiresAt time.Time
}

// Organization is a row of sys_organization.
type Organization struct {
	// ID is "default" for the default organization, which everywhere else is "".
	ID, Name, Slug       string
	CreatedAt, UpdatedAt time.Time
}

// Member ties a user to an organization.
type Member struct {
	ID, OrganizationID, UserID string
	// Roles are names of roles of the organization.
	Roles     []string
	CreatedAt time.Time
}

// Role is what its holders may do in an organization.
type Role struct {
	ID, OrganizationID, Name, Label string
	// Permissions have the form of the scopes of keys.
	Permissions          []string
	CreatedAt, UpdatedAt time.Time
}

// Entry is a row of the audit log.
type Entry struct {
	ID, OrganizationID string
	At                 time.Time
	// UserID and KeyID tell who acted; both are "" for the host itself.
	UserID, KeyID string
	// Action is what was done (member.add), Target whom it was done to.
	Action, TargetType, TargetID string
	// IP is where the request came from.
	IP string
	// Detail is a JSON object without secrets, "" for none.
	Detail string
}

// Pending is something that waits for its one use: a sign-in at a provider, or
// the making of the first administrator.
type Pending struct {
	// Hash is the hex SHA-256 of the value that redeems it.
	Hash string
	// Kind tells what it is for, Data what the use needs, sealed by nobody.
	Kind, Data string
	// ExpiresAt is zero for one that waits for ever.
	ExpiresAt time.Time
}

// ErrConflict is returned for a value that another row has already: an email
// address, a slug, a name, a membership.
var ErrConflict = errors.New("driver: already there")

// Directory keeps users, what they belong to and how they sign in. "" stands
// for the default organization. Writes join the transaction that ctx carries;
// methods that look for one row return ErrNotFound. Implementations are safe
// for concurrent use.
type Directory interface {
	// InTx runs fn in a transaction.
	InTx(ctx context.Context, fn func(ctx context.Context) error) error
	Users
	Sessions
	Organizations
	Invitations
	// Append writes entries of the audit log.
	Append(ctx context.Context, entries ...Entry) error
	// Hit counts an attempt under a key and returns how many there were in the
	// window that began with the first, and when that ends.
	Hit(ctx context.Context, key string, window time.Duration, now time.Time) (hits int, ends time.Time, err error)
	// Forget removes the count of a key.
	Forget(ctx context.Context, key string) error
	// Put stores something pending, Take removes and returns it, and
	// AnyPending reports whether something of a kind is there.
	Put(ctx context.Context, p Pending) error
	Take(ctx context.Context, kind, hash string, now time.Time) (Pending, error)
	AnyPending(ctx context.Context, kind string) (bool, error)
	// Value returns the host's value called name, which is stored as initial
	// when there is none.
	Value(ctx context.Context, name, initial string) (string, error)
	// Clean removes counts, pendings and sessions that have ended by now.
	Clean(ctx context.Context, now time.Time) error
}

// Users are people and how they sign in.
type Users interface {
	// InsertUser adds a user; ErrConflict for a taken email address.
	InsertUser(ctx context.Context, u User) error
	// UpdateUser replaces name, image, email and DisabledAt.
	UpdateUser(ctx context.Context, u User) error
	User(ctx context.Context, id string) (User, error)
	UserByEmail(ctx context.Context, email string) (User, error)
	// UsersOf returns users of an organization, or of all with everywhere, in
	// the order of their email addresses.
	UsersOf(ctx context.Context, organizationID string, everywhere bool, limit, offset int) ([]User, int, error)
	// AnyUser reports whether there is a user. On PostgreSQL it makes callers in
	// transactions take turns, so that one of them is the first.
	AnyUser(ctx context.Context) (bool, error)
	// PutAccount adds an account or replaces its password.
	PutAccount(ctx context.Context, a Account) error
	Account(ctx context.Context, provider, subject string) (Account, error)
}

// Sessions are signed-in users.
type Sessions interface {
	InsertSession(ctx context.Context, s Session) error
	SessionByHash(ctx context.Context, hash string) (Session, error)
	SessionByID(ctx context.Context, id string) (Session, error)
	// SessionsOf returns a user's sessions that have not expired, oldest first.
	SessionsOf(ctx context.Context, userID string, now time.Time) ([]Session, error)
	// Activate makes a session act in an organization.
	Activate(ctx context.Context, id, organizationID string) error
	// Extend puts the end of a session off.
	Extend(ctx context.Context, id string, at, expires time.Time) error
	// EndSession ends one session of the user; ErrNotFound when there is none.
	EndSession(ctx context.Context, userID, id string) error
	// EndSessions ends all sessions of a user but one, "" for none, and returns
	// their ids.
	EndSessions(ctx context.Context, userID, except string) ([]string, error)
}

// Organizations are who belongs to what, and what the roles there may do.
type Organizations interface {
	// InsertOrganization adds one; ErrConflict for a taken slug.
	InsertOrganization(ctx context.Context, o Organization) error
	UpdateOrganization(ctx context.Context, o Organization) error
	// Organization takes "default" for the default one.
	Organization(ctx context.Context, id string) (Organization, error)
	// OrganizationsOf returns those that a user is a member of, the one with
	// the oldest membership first; with the default one in front.
	OrganizationsOf(ctx context.Context, userID string) ([]Organization, error)
	CountOrganizations(ctx context.Context) (int, error)

	// InsertMember adds a member; ErrConflict for somebody who is one already.
	InsertMember(ctx context.Context, m Member) error
	UpdateMember(ctx context.Context, m Member) error
	DeleteMember(ctx context.Context, organizationID, id string) error
	MemberOf(ctx context.Context, organizationID, userID string) (Member, error)
	Member(ctx context.Context, organizationID, id string) (Member, error)
	// Members returns all of an organization, oldest first, and locks them
	// until the transaction ends.
	Members(ctx context.Context, organizationID string) ([]Member, error)

	// PutRole adds a role or replaces the one of its name.
	PutRole(ctx context.Context, r Role) error
	DeleteRole(ctx context.Context, organizationID, name string) error
	Roles(ctx context.Context, organizationID string) ([]Role, error)
}

// Invitation offers a membership to whoever has the email address.
type Invitation struct {
	ID, OrganizationID, Email string
	Roles                     []string
	InviterID                 string
	CreatedAt, ExpiresAt      time.Time
}

// Invitations are memberships on offer.
type Invitations interface {
	// PutInvitation adds one, in the place of an earlier one for the same
	// address and organization.
	PutInvitation(ctx context.Context, i Invitation) error
	// InvitationsOf returns those of an organization, InvitationsFor those for
	// an email address, that have not expired, oldest first.
	InvitationsOf(ctx context.Context, organizationID string, now time.Time) ([]Invitation, error)
	InvitationsFor(ctx context.Context, email string, now time.Time) ([]Invitation, error)
	// TakeInvitation removes and returns one that has not expired: of the
	// organization, or for the email address when that is not empty.
	TakeInvitation(ctx context.Context, id, organizationID, email string, now time.Time) (Invitation, error)
}
