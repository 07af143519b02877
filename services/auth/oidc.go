package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/auth/driver"
)

// kindOIDC is the kind of a sign-in that waits for its provider's answer.
const kindOIDC = "oidc"

const (
	// pendingAge is how long a visitor may take at the provider.
	pendingAge = 10 * time.Minute
	// providerTimeout bounds each request to a provider.
	providerTimeout = 10 * time.Second
)

var providerForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// Errors of a sign-in at a provider.
var (
	ErrProviderNotFound = errors.New("auth: there is no such provider")
	// ErrCallback is returned for a page to go back to that is not trusted.
	ErrCallback = errors.New("auth: the callback URL is neither a path nor of a trusted origin")
	// ErrState is returned for an answer that belongs to no sign-in which this
	// browser began here, or began more than ten minutes ago.
	ErrState = errors.New("auth: the sign-in is not one that this browser began, or it took too long")
	// ErrNotInvited is returned for somebody whom the provider knows and this
	// host does not.
	ErrNotInvited = errors.New("auth: no user of this host belongs to this account")
	// ErrProvider is wrapped by what a provider answers wrongly, or not at all.
	ErrProvider = errors.New("auth: the provider did not confirm the sign-in")
)

// Provider is an OpenID Connect provider at which users sign in. Its
// configuration is read from its issuer when it is first used.
type Provider struct {
	// ID names it in paths: a lower-case letter, then a-z, 0-9 and -.
	ID string
	// Name is shown to people; empty means the ID.
	Name string
	// Issuer is the URL below which /.well-known/openid-configuration lies.
	Issuer string
	// ClientID and ClientSecret are what the provider knows this host by. Its
	// redirect URL is <PublicURL>/api/v1/auth/callback/<ID>.
	ClientID, ClientSecret string
	// Scopes are asked for besides openid; nil means email and profile.
	Scopes []string
	// CreateUsers makes a user of everybody whom the provider knows, with Role in
	// the default organization. Otherwise people need a user with the email
	// address that the provider has verified.
	CreateUsers bool
	// Role of new users; empty means member.
	Role string
}

// provider is a Provider in use.
type provider struct {
	Provider
	client *http.Client

	mu     sync.Mutex
	remote *oidc.Provider // nil until it was read
}

func newProvider(p Provider) (*provider, error) {
	bad := func(field, reason string) (*provider, error) {
		return nil, fmt.Errorf("auth: provider %q: %s %s", p.ID, field, reason)
	}
	u, err := url.Parse(p.Issuer)
	switch {
	case !providerForm.MatchString(p.ID) || p.ID == providerPassword:
		return bad("ID", "must be a lower-case letter and at most 31 of a-z, 0-9 and -")
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return bad("Issuer", "must be an http or https URL")
	case p.ClientID == "":
		return bad("ClientID", "is required")
	}
	if p.Name == "" {
		p.Name = p.ID
	}
	if p.Scopes == nil {
		p.Scopes = []string{"email", "profile"}
	}
	if p.Role == "" {
		p.Role = RoleMember
	}
	return &provider{Provider: p, client: &http.Client{Timeout: providerTimeout}}, nil
}

// discover reads the provider's configuration once. One that could not be read
// is asked again next time.
func (p *provider) discover(ctx context.Context) (*oidc.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.remote != nil {
		return p.remote, nil
	}
	// The provider keeps the context for reading keys later on.
	remote, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.client), p.Issuer)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProvider, err)
	}
	p.remote = remote
	return remote, nil
}

func (p *provider) oauth(remote *oidc.Provider, publicURL string) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.ClientID, ClientSecret: p.ClientSecret, Endpoint: remote.Endpoint(),
		RedirectURL: publicURL + authBase + "/callback/" + p.ID, Scopes: append([]string{oidc.ScopeOpenID}, p.Scopes...),
	}
}

// waiting is what a sign-in keeps while the visitor is at the provider.
type waiting struct {
	Provider, Nonce, Verifier string
	// Callback is where the visitor goes afterwards, Failed where after a
	// refusal.
	Callback, Failed string
}

// beginOIDC returns where to send the visitor, and the state that the answer
// comes back with.
func (s *Service) beginOIDC(ctx context.Context, id, callback, failed string) (target, state string, err error) {
	p := s.providers[id]
	if p == nil {
		return "", "", ErrProviderNotFound
	}
	remote, err := p.discover(ctx)
	if err != nil {
		return "", "", err
	}
	w := waiting{Provider: id, Nonce: newLongID(), Verifier: oauth2.GenerateVerifier(), Callback: callback, Failed: failed}
	data, err := json.Marshal(w)
	if err != nil {
		return "", "", err
	}
	state = newLongID()
	err = s.dir.Put(ctx, driver.Pending{Hash: hashSecret(state), Kind: kindOIDC, Data: string(data), ExpiresAt: s.cfg.Now().Add(pendingAge)})
	if err != nil {
		return "", "", fmt.Errorf("auth: store sign-in: %w", err)
	}
	return p.oauth(remote, s.cfg.PublicURL).AuthCodeURL(state, oidc.Nonce(w.Nonce), oauth2.S256ChallengeOption(w.Verifier)), state, nil
}

// takeOIDC returns what waits for a state, once.
func (s *Service) takeOIDC(ctx context.Context, id, state string) (waiting, error) {
	var w waiting
	pending, err := s.dir.Take(ctx, kindOIDC, hashSecret(state), s.cfg.Now())
	if errors.Is(err, driver.ErrNotFound) {
		return w, ErrState
	}
	if err != nil {
		return w, fmt.Errorf("auth: read sign-in: %w", err)
	}
	if err := json.Unmarshal([]byte(pending.Data), &w); err != nil {
		return w, fmt.Errorf("auth: read sign-in: %w", err)
	}
	if w.Provider != id {
		return w, ErrState
	}
	return w, nil
}

// claims are what is read of an ID token.
type claims struct {
	Email         string `json:"email"`
	EmailVerified any    `json:"email_verified"` // some providers write "true"
	Name          string `json:"name"`
}

func (c claims) verified() bool { return c.EmailVerified == true || c.EmailVerified == "true" }

// finishOIDC redeems the provider's code and signs its owner in.
func (s *Service) finishOIDC(ctx context.Context, w waiting, code string, from Client) (SignedIn, error) {
	p := s.providers[w.Provider]
	if p == nil {
		return SignedIn{}, ErrProviderNotFound
	}
	remote, err := p.discover(ctx)
	if err != nil {
		return SignedIn{}, err
	}
	asking := oidc.ClientContext(ctx, p.client)
	token, err := p.oauth(remote, s.cfg.PublicURL).Exchange(asking, code, oauth2.VerifierOption(w.Verifier))
	if err != nil {
		var refused *oauth2.RetrieveError
		if errors.As(err, &refused) {
			err = fmt.Errorf("token endpoint answered %s: %s", refused.Response.Status, refused.ErrorCode) // without its body
		}
		return SignedIn{}, fmt.Errorf("%w: %w", ErrProvider, err)
	}
	raw, _ := token.Extra("id_token").(string)
	id, err := remote.Verifier(&oidc.Config{ClientID: p.ClientID, Now: s.cfg.Now}).Verify(asking, raw)
	if err != nil {
		return SignedIn{}, fmt.Errorf("%w: %w", ErrProvider, err)
	}
	var c claims
	if err := id.Claims(&c); err != nil {
		return SignedIn{}, fmt.Errorf("%w: %w", ErrProvider, err)
	}
	if id.Nonce != w.Nonce || id.Subject == "" {
		return SignedIn{}, fmt.Errorf("%w: the token is for another sign-in", ErrProvider)
	}
	var in SignedIn
	err = s.dir.InTx(ctx, func(ctx context.Context) error {
		user, err := s.userAt(ctx, p, id.Subject, c)
		if err != nil {
			return err
		}
		in, err = s.begin(ctx, user, from, p.ID)
		return err
	})
	return in, err
}

// userAt finds the user of a provider's account: the one that signed in with it
// before, the one whose email address the provider has verified, or a new one
// where these are made. An address that the provider has not verified belongs to
// nobody.
func (s *Service) userAt(ctx context.Context, p *provider, subject string, c claims) (driver.User, error) {
	account, err := s.dir.Account(ctx, p.ID, subject)
	switch {
	case err == nil:
		user, err := s.user(ctx, account.UserID)
		if err == nil && !user.DisabledAt.IsZero() {
			err = ErrNotInvited
		}
		return user, err
	case !errors.Is(err, driver.ErrNotFound):
		return driver.User{}, fmt.Errorf("auth: look up account: %w", err)
	}
	email := normalEmail(c.Email)
	if !c.verified() || checkEmail(email) != nil {
		return driver.User{}, ErrNotInvited
	}
	user, err := s.dir.UserByEmail(ctx, email)
	switch {
	case err == nil && !user.DisabledAt.IsZero():
		return driver.User{}, ErrNotInvited
	case errors.Is(err, driver.ErrNotFound) && !p.CreateUsers:
		return driver.User{}, ErrNotInvited
	case errors.Is(err, driver.ErrNotFound):
		if user, err = s.createAt(ctx, p, email, c.Name); err != nil {
			return driver.User{}, err
		}
	case err != nil:
		return driver.User{}, fmt.Errorf("auth: look up user: %w", err)
	}
	now := millis(s.cfg.Now())
	err = s.dir.PutAccount(ctx, driver.Account{ID: newLongID(), UserID: user.ID, Provider: p.ID, Subject: subject, CreatedAt: now, UpdatedAt: now})
	if err != nil {
		return driver.User{}, fmt.Errorf("auth: store account: %w", err)
	}
	return user, s.note(identity.With(ctx, identity.Principal{UserID: user.ID}), "user.link_account", "user", user.ID, map[string]any{"provider": p.ID})
}

// createAt makes a user of somebody whom the provider knows.
func (s *Service) createAt(ctx context.Context, p *provider, email, name string) (driver.User, error) {
	ctx = identity.With(ctx, identity.System())
	if checkLabel("name", name, maxNameLength) != nil {
		name, _, _ = strings.Cut(email, "@")
	}
	return s.insertUser(ctx, NewUser{Name: name, Email: email, EmailVerified: true, Roles: []string{p.Role}}, "")
}

// stateCookie ties a sign-in to the browser that began it: nobody can be signed
// in by a link that somebody else has made.
const stateCookie = "better-auth.state"

func (s *Service) serveSignInProvider(w http.ResponseWriter, r *http.Request) (any, error) {
	var in struct{ Provider, ProviderID, CallbackURL, ErrorCallbackURL string }
	if err := s.checkOrigin(r); err != nil {
		return nil, err
	}
	if err := readBody(r, &in, false); err != nil {
		return nil, err
	}
	if in.Provider == "" {
		in.Provider = in.ProviderID
	}
	if in.CallbackURL == "" {
		in.CallbackURL = "/"
	}
	if in.ErrorCallbackURL == "" {
		in.ErrorCallbackURL = in.CallbackURL
	}
	if !s.leadsHome(r, in.CallbackURL) || !s.leadsHome(r, in.ErrorCallbackURL) {
		return nil, ErrCallback
	}
	if err := s.attemptFrom(r.Context(), ClientAt(r).IP); err != nil {
		return nil, err
	}
	target, state, err := s.beginOIDC(r.Context(), in.Provider, in.CallbackURL, in.ErrorCallbackURL)
	if err != nil {
		return nil, err
	}
	http.SetCookie(w, &http.Cookie{
		Name: stateCookie, Value: state, Path: authBase + "/callback", MaxAge: int(pendingAge.Seconds()), HttpOnly: true,
		SameSite: http.SameSiteLaxMode, Secure: s.secure(r),
	})
	return map[string]any{"url": target, "redirect": true}, nil
}

// leadsHome reports whether a visitor may be sent to a URL: a path of the host,
// or a page of a trusted origin.
func (s *Service) leadsHome(r *http.Request, target string) bool {
	u, err := url.Parse(target)
	switch {
	case err != nil || strings.ContainsAny(target, "\\\r\n\t"):
		return false
	case u.Scheme == "" && u.Host == "":
		return strings.HasPrefix(target, "/") && !strings.HasPrefix(target, "//")
	}
	return u.User == nil && s.trusted(r, u.Scheme+"://"+u.Host)
}

// serveCallback is where the provider sends the visitor back to.
func (s *Service) serveCallback(w http.ResponseWriter, r *http.Request) {
	r = r.WithContext(WithClient(r.Context(), ClientAt(r)))
	w.Header().Set("Cache-Control", "no-store")
	query := r.URL.Query()
	cookie, err := r.Cookie(stateCookie)
	if err != nil || cookie.Value == "" || cookie.Value != query.Get("state") {
		s.refuseBare(w, r, ErrState)
		return
	}
	waits, err := s.takeOIDC(r.Context(), r.PathValue("provider"), cookie.Value)
	if err != nil {
		s.refuseBare(w, r, err)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: stateCookie, Path: authBase + "/callback", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: s.secure(r)})
	var signed SignedIn
	if query.Get("code") == "" {
		err = fmt.Errorf("%w: it answered with an error", ErrProvider)
	} else {
		signed, err = s.finishOIDC(r.Context(), waits, query.Get("code"), ClientAt(r))
	}
	if err != nil {
		e := refusalOf(err)
		s.cfg.Logger.WarnContext(r.Context(), "sign-in at a provider refused", "provider", waits.Provider, "error", err)
		redirect(w, waits.Failed, "error", strings.ToLower(e.code))
		return
	}
	s.hand(w, r, signed)
	redirect(w, waits.Callback, "", "")
}

// redirect sends the visitor on, with a parameter unless its name is empty.
// http.Redirect would resolve paths against the route's own.
func redirect(w http.ResponseWriter, target, name, value string) {
	if u, err := url.Parse(target); err == nil && name != "" {
		q := u.Query()
		q.Set(name, value)
		u.RawQuery = q.Encode()
		target = u.String()
	}
	w.Header().Set("Location", target)
	w.WriteHeader(http.StatusFound)
}

// providerViews are the providers as clients show them.
func (s *Service) providerViews() []map[string]any {
	views := []map[string]any{}
	for _, p := range s.cfg.Providers {
		known := s.providers[p.ID]
		views = append(views, map[string]any{"id": p.ID, "name": known.Name, "type": "oidc", "enabled": true})
	}
	return views
}
