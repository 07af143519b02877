package auth_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/argon2"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/auth"
	"github.com/objecthost/objecthost/services/auth/sqlstore"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

const password = "correct horse battery"

// house is a service with users on a database, and its clock.
type house struct {
	*auth.Service
	store *sqlstore.Store
	db    *storage.DB

	mu  sync.Mutex
	now time.Time
}

func (h *house) time() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

func (h *house) advance(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = h.now.Add(d)
}

func each(t *testing.T, fn func(t *testing.T, h *house)) {
	t.Helper()
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		h := &house{store: sqlstore.New(db), db: db, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
		if err := h.store.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		var err error
		h.Service, err = auth.New(h.store, auth.Config{CacheTTL: -1, Now: h.time})
		if err != nil {
			t.Fatal(err)
		}
		fn(t, h)
	})
}

func system(t *testing.T) context.Context { return identity.With(t.Context(), identity.System()) }

// person makes a user with roles in an organization.
func (h *house) person(t *testing.T, email, organization string, roles ...string) string {
	t.Helper()
	user, err := h.CreateUser(system(t), auth.NewUser{Email: email, Password: password, EmailVerified: true, OrganizationID: organization, Roles: roles})
	if err != nil {
		t.Fatalf("CreateUser(%s) = %v", email, err)
	}
	return user.ID
}

func (h *house) organization(t *testing.T, slug string) string {
	t.Helper()
	o, err := h.CreateOrganization(system(t), slug, slug)
	if err != nil {
		t.Fatal(err)
	}
	return o.ID
}

// in signs somebody in and returns what their requests carry.
func (h *house) in(t *testing.T, email string) (auth.SignedIn, context.Context) {
	t.Helper()
	signed, err := h.SignIn(t.Context(), email, password, auth.Client{IP: "192.0.2.1", UserAgent: "test"})
	if err != nil {
		t.Fatalf("SignIn(%s) = %v", email, err)
	}
	return signed, h.as(t, signed.Token)
}

func (h *house) as(t *testing.T, token string) context.Context {
	t.Helper()
	p, err := h.Authenticate(bearer(t, token))
	if err != nil {
		t.Fatalf("Authenticate = %v", err)
	}
	return identity.With(t.Context(), p)
}

func bearer(t *testing.T, token string) *http.Request {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://host.example/", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// actions are those in the audit log, in their order.
func (h *house) actions(t *testing.T, organization string) []string {
	t.Helper()
	rows, err := h.db.Read(t.Context()).QueryContext(t.Context(),
		"SELECT action FROM sys_audit_log WHERE COALESCE(organization_id, '') = $1 ORDER BY created_at, action", organization)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var out []string
	for rows.Next() {
		var action string
		if err := rows.Scan(&action); err != nil {
			t.Fatal(err)
		}
		out = append(out, action)
	}
	return out
}

func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

func TestSignIn(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		id := h.person(t, "Ann@Example.com", "", auth.RoleMember)
		signed, ctx := h.in(t, " ANN@example.COM ")
		if signed.User.ID != id || len(id) != 32 || signed.User.Email != "ann@example.com" || len(signed.Token) != 32 {
			t.Fatalf("signed in as %+v", signed.User)
		}
		want := identity.Principal{UserID: id, SessionID: signed.Session.ID}
		if got := identity.From(ctx); got != want {
			t.Errorf("principal %+v, want %+v", got, want)
		}
		for _, credential := range []string{signed.Token, signed.Signed} {
			if p, err := h.Authenticate(bearer(t, credential)); err != nil || p != want {
				t.Errorf("Authenticate = %+v, %v", p, err)
			}
		}
		for name, credential := range map[string]string{
			"another token": strings.Repeat("a", 32), "a wrong signature": signed.Token + ".AAAA", "its id": signed.Session.ID,
			"its hash": strings.Repeat("0", 64), "nothing": "", "noise": "osk", "a list": signed.Token + "." + signed.Token,
		} {
			if _, err := h.Authenticate(bearer(t, credential)); !errors.Is(err, auth.ErrInvalidCredentials) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, wrong := range [][2]string{{"ann@example.com", "wrong"}, {"ann@example.com", ""}, {"nobody@example.com", password}, {"", ""}} {
			if _, err := h.SignIn(t.Context(), wrong[0], wrong[1], auth.Client{}); !errors.Is(err, auth.ErrInvalidLogin) {
				t.Errorf("SignIn(%v) = %v", wrong, err)
			}
		}
		for _, text := range []string{fmt.Sprint(signed), fmt.Sprintf("%#v", signed), fmt.Sprintf("%+v", signed)} {
			if strings.Contains(text, signed.Token) {
				t.Errorf("a log shows the token: %s", text)
			}
		}
		var stored int
		err := h.db.Read(t.Context()).QueryRowContext(t.Context(), "SELECT count(*) FROM sys_session WHERE token_hash LIKE '%' || $1 || '%'", signed.Token).Scan(&stored)
		if err != nil || stored != 0 {
			t.Errorf("%d tokens stored in clear, %v", stored, err)
		}
	})
}

func TestPasswordsAreHashedWithArgon2id(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		id := h.person(t, "a@example.com", "", auth.RoleMember)
		account, err := h.store.Account(t.Context(), "credential", id)
		if err != nil || !strings.HasPrefix(account.PasswordHash, "$argon2id$v=19$m=19456,t=2,p=1$") {
			t.Fatalf("hash %q, %v", account.PasswordHash, err)
		}
		// A hash with other parameters works, and gives way to today's.
		older := argon2.IDKey([]byte(password), []byte("saltsalt"), 1, 64, 1, 32)
		account.PasswordHash = "$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHQ$" + base64.RawStdEncoding.EncodeToString(older)
		if err := h.store.PutAccount(t.Context(), account); err != nil {
			t.Fatal(err)
		}
		_, err = h.SignIn(t.Context(), "a@example.com", password, auth.Client{})
		after, _ := h.store.Account(t.Context(), "credential", id)
		if err != nil || !strings.HasPrefix(after.PasswordHash, "$argon2id$v=19$m=19456,t=2,p=1$") {
			t.Errorf("after signing in: %q, %v", after.PasswordHash, err)
		}
		for _, bad := range []string{"", "$2a$10$abcdefghijklmnopqrstuv", "$argon2id$v=19$m=4294967295,t=2,p=1$c2FsdHNhbHQ$c2FsdHNhbHRzYWx0c2FsdA", "plain"} {
			account.PasswordHash = bad
			if err := h.store.PutAccount(t.Context(), account); err != nil {
				t.Fatal(err)
			}
			if _, err := h.SignIn(t.Context(), "a@example.com", password, auth.Client{}); err == nil {
				t.Errorf("signed in with the stored hash %q", bad)
			}
		}
	})
}

// Guesses are counted before they are looked at: also those at the same time,
// and for addresses that nobody has.
func TestGuessingIsLimited(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		h.person(t, "ann@example.com", "", auth.RoleMember)
		for _, email := range []string{"ann@example.com", "nobody@example.com"} {
			var looked, refused int
			var mu sync.Mutex
			var guesses sync.WaitGroup
			for i := range 14 {
				guesses.Go(func() {
					_, err := h.SignIn(context.Background(), email, fmt.Sprint("guess", i), auth.Client{IP: fmt.Sprint("192.0.2.", i)})
					mu.Lock()
					defer mu.Unlock()
					switch {
					case errors.Is(err, auth.ErrInvalidLogin):
						looked++
					case is[*auth.ThrottledError](err):
						refused++
					default:
						t.Errorf("%s: %v", email, err)
					}
				})
			}
			guesses.Wait()
			if looked != 10 || refused != 4 {
				t.Errorf("%s: %d guesses looked at, %d refused; want 10 and 4", email, looked, refused)
			}
		}
		_, err := h.SignIn(t.Context(), "ann@example.com", password, auth.Client{})
		var throttled *auth.ThrottledError
		if !errors.As(err, &throttled) || throttled.After != 15*time.Minute {
			t.Fatalf("the right password meanwhile: %v", err)
		}
		h.advance(15 * time.Minute)
		h.in(t, "ann@example.com")
		// A sign-in ends the count.
		for range 10 {
			if _, err := h.SignIn(t.Context(), "ann@example.com", "wrong", auth.Client{}); !errors.Is(err, auth.ErrInvalidLogin) {
				t.Fatalf("after a sign-in: %v", err)
			}
		}
	})
}

// One client's guesses at many addresses are limited too, of its whole network
// for IPv6.
func TestSprayingIsLimited(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		for i := range 300 {
			if _, _, err := h.store.Hit(t.Context(), "ip:2001:db8:0:1::/64", time.Hour, h.time()); err != nil {
				t.Fatal(i, err)
			}
		}
		_, err := h.SignIn(t.Context(), "a@example.com", "x", auth.Client{IP: "2001:db8:0:1:ffff::7"})
		if !is[*auth.ThrottledError](err) {
			t.Errorf("the same network: %v", err)
		}
		_, err = h.SignIn(t.Context(), "b@example.com", "x", auth.Client{IP: "2001:db8:0:2::7"})
		if !errors.Is(err, auth.ErrInvalidLogin) {
			t.Errorf("another network: %v", err)
		}
	})
}

func TestSessionsEnd(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		id := h.person(t, "ann@example.com", "", auth.RoleMember)
		gone := func(what string, signed auth.SignedIn, ctx context.Context) {
			t.Helper()
			if _, err := h.Authenticate(bearer(t, signed.Token)); !errors.Is(err, auth.ErrInvalidCredentials) {
				t.Errorf("%s: Authenticate = %v", what, err)
			}
			// What goes on after the request has ended is refused as well.
			if err := h.Can(ctx, identity.OperationList, "account"); !errors.Is(err, identity.ErrUnauthenticated) {
				t.Errorf("%s: Can = %v", what, err)
			}
		}
		first, one := h.in(t, "ann@example.com")
		second, two := h.in(t, "ann@example.com")
		if err := h.Can(one, identity.OperationList, "account"); err != nil {
			t.Fatal(err)
		}
		if err := h.SignOut(one); err != nil {
			t.Fatal(err)
		}
		gone("signed out", first, one)
		third, three := h.in(t, "ann@example.com")
		if err := h.EndSessions(three, true); err != nil {
			t.Fatal(err)
		}
		gone("ended from another one", second, two)
		if list, err := h.Sessions(three); err != nil || len(list) != 1 || list[0].ID != third.Session.ID {
			t.Errorf("sessions %v, %v", list, err)
		}
		other := h.person(t, "bob@example.com", "", auth.RoleMember)
		_, bob := h.in(t, "bob@example.com")
		if err := h.EndSession(bob, third.Session.ID); !errors.Is(err, auth.ErrSessionNotFound) {
			t.Errorf("somebody else's session: %v", err)
		}
		if err := h.ChangePassword(three, "wrong", "a new password"); !errors.Is(err, auth.ErrWrongPassword) {
			t.Errorf("the wrong present password: %v", err)
		}
		if err := h.ChangePassword(three, password, "short"); !is[*auth.InvalidError](err) {
			t.Errorf("a short password: %v", err)
		}
		fourth, four := h.in(t, "ann@example.com")
		if err := h.ChangePassword(three, password, "a new password"); err != nil {
			t.Fatal(err)
		}
		gone("another password", fourth, four)
		h.as(t, third.Token)
		if _, err := h.SignIn(t.Context(), "ann@example.com", password, auth.Client{}); !errors.Is(err, auth.ErrInvalidLogin) {
			t.Errorf("the old password: %v", err)
		}
		if err := h.SetPassword(system(t), id, password); err != nil {
			t.Fatal(err)
		}
		gone("a password set by a manager", third, three)
		fifth, five := h.in(t, "ann@example.com")
		if _, err := h.SetDisabled(system(t), id, true); err != nil {
			t.Fatal(err)
		}
		gone("disabled", fifth, five)
		if _, err := h.SignIn(t.Context(), "ann@example.com", password, auth.Client{}); !errors.Is(err, auth.ErrInvalidLogin) {
			t.Errorf("a disabled user: %v", err)
		}
		if _, err := h.SetDisabled(system(t), id, false); err != nil {
			t.Fatal(err)
		}
		sixth, six := h.in(t, "ann@example.com")
		h.advance(7*24*time.Hour - time.Millisecond)
		h.as(t, sixth.Token)
		if err := h.FlushSessions(t.Context()); err != nil { // used after a day: it goes on
			t.Fatal(err)
		}
		h.advance(7*24*time.Hour - 2*time.Millisecond)
		h.as(t, sixth.Token)
		h.advance(2 * time.Millisecond)
		gone("expired", sixth, six)
		if err := h.Clean(t.Context()); err != nil {
			t.Fatal(err)
		}
		if list, err := h.store.SessionsOf(t.Context(), other, start); err != nil || len(list) != 0 {
			t.Errorf("left after cleaning: %v, %v", list, err)
		}
	})
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Cookies speak for a browser, so that another site's page must not use them.
func TestCookies(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		h.person(t, "ann@example.com", "", auth.RoleMember)
		service, err := auth.New(h.store, auth.Config{Now: h.time, PublicURL: "https://host.example", AllowedOrigins: []string{"https://app.example"}})
		if err != nil {
			t.Fatal(err)
		}
		signed, _ := h.in(t, "ann@example.com")
		request := func(method, cookie string, header ...string) *http.Request {
			r := httptest.NewRequestWithContext(t.Context(), method, "http://host.example/api/v1/data/account", nil)
			r.AddCookie(&http.Cookie{Name: cookie, Value: strings.ReplaceAll(signed.Signed, "+", "%2B")})
			for i := 0; i < len(header); i += 2 {
				r.Header.Set(header[i], header[i+1])
			}
			return r
		}
		for name, test := range map[string]struct {
			r    *http.Request
			want error
		}{
			"reading":              {request("GET", "better-auth.session_token", "Origin", "https://evil.example"), nil},
			"over TLS":             {request("GET", "__Secure-better-auth.session_token"), nil},
			"own page":             {request("POST", "better-auth.session_token", "Origin", "https://host.example"), nil},
			"allowed page":         {request("PATCH", "better-auth.session_token", "Origin", "https://app.example"), nil},
			"same origin, untold":  {request("DELETE", "better-auth.session_token", "Sec-Fetch-Site", "same-origin"), nil},
			"another site":         {request("POST", "better-auth.session_token", "Origin", "https://evil.example"), auth.ErrOrigin},
			"own host, no TLS":     {request("POST", "better-auth.session_token", "Origin", "http://host.example"), auth.ErrOrigin},
			"a sandboxed page":     {request("POST", "better-auth.session_token", "Origin", "null"), auth.ErrOrigin},
			"nothing told":         {request("POST", "better-auth.session_token"), auth.ErrOrigin},
			"another site, untold": {request("PUT", "better-auth.session_token", "Sec-Fetch-Site", "cross-site"), auth.ErrOrigin},
			"a key counts first":   {request("POST", "better-auth.session_token", "X-API-Key", "osk_no"), auth.ErrInvalidCredentials},
		} {
			p, err := service.Authenticate(test.r)
			if !errors.Is(err, test.want) || err == nil && p.SessionID != signed.Session.ID {
				t.Errorf("%s: %+v, %v", name, p, err)
			}
		}
	})
}
