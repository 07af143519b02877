package auth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/auth"
)

// issuer is an OpenID Connect provider: it hands out codes to whom the test
// says, checks what comes back, and signs ID tokens.
type issuer struct {
	*httptest.Server
	key *ecdsa.PrivateKey
	now func() time.Time

	mu sync.Mutex
	// claims are those of the next token, beside the ones that the protocol
	// asks for.
	claims map[string]any
	codes  map[string]url.Values // what the code was asked for
	signer *ecdsa.PrivateKey     // the key that signs, when it is another one
}

func newIssuer(t *testing.T, now func() time.Time) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key, signer: key, now: now, codes: map[string]url.Values{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"ES256"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1", Algorithm: "ES256", Use: "sig"}}})
	})
	mux.HandleFunc("POST /token", i.token)
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

// visit is what the browser does at the provider: it gets a code.
func (i *issuer) visit(target string) (code, state string) {
	u, _ := url.Parse(target)
	code = rand.Text()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.codes[code] = u.Query()
	return code, u.Query().Get("state")
}

func (i *issuer) token(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	asked, ok := i.codes[r.FormValue("code")]
	delete(i.codes, r.FormValue("code"))
	id, secret, _ := r.BasicAuth()
	secret, _ = url.QueryUnescape(secret) // RFC 6749, section 2.3.1
	if id == "" {
		id, secret = r.FormValue("client_id"), r.FormValue("client_secret")
	}
	challenge := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if !ok || id != "host" || secret != "client secret" || r.FormValue("redirect_uri") != asked.Get("redirect_uri") ||
		asked.Get("code_challenge_method") != "S256" || asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(challenge[:]) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":"invalid_grant"}`)
		return
	}
	all := map[string]any{
		"iss": i.URL, "aud": "host", "sub": "s1", "nonce": asked.Get("nonce"), "iat": i.now().Unix(), "exp": i.now().Add(time.Minute).Unix(),
	}
	for name, value := range i.claims {
		all[name] = value
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.signer, KeyID: "1"}}, nil)
	if err != nil {
		panic(err)
	}
	text, _ := json.Marshal(all)
	signed, err := signer.Sign(text)
	if err != nil {
		panic(err)
	}
	compact, _ := signed.CompactSerialize()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": compact})
}

// portal is a service with a provider, and its routes.
type portal struct {
	*auth.Service
	routes http.Handler
	issuer *issuer
}

func (h *house) portal(t *testing.T, change func(*auth.Provider)) *portal {
	t.Helper()
	p := &portal{issuer: newIssuer(t, h.time)}
	provider := auth.Provider{ID: "corp", Name: "Corp", Issuer: p.issuer.URL, ClientID: "host", ClientSecret: "client secret"}
	change(&provider)
	var err error
	p.Service, err = auth.New(h.store, auth.Config{CacheTTL: -1, Now: h.time, PublicURL: "https://host.example", Providers: []auth.Provider{provider}})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, route := range auth.NewPlugin(p.Service, nil).Manifest().Contributes.Routes {
		mux.Handle(route.Method+" "+route.Pattern, route.Handler)
	}
	p.routes = mux
	return p
}

func (p *portal) call(t *testing.T, method, target, body string, cookies ...*http.Cookie) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "https://host.example"+target, strings.NewReader(body))
	r.Host = "host.example"
	for _, c := range cookies {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	p.routes.ServeHTTP(w, r)
	return w.Result()
}

// begin starts a sign-in and returns where it leads and the browser's cookie.
func (p *portal) begin(t *testing.T, callback string) (target string, state *http.Cookie) {
	t.Helper()
	answer := p.call(t, "POST", "/api/v1/auth/sign-in/social", `{"provider":"corp","callbackURL":"`+callback+`","errorCallbackURL":"/oops?a=1"}`)
	defer answer.Body.Close()
	var body struct {
		URL      string
		Redirect bool
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil || answer.StatusCode != 200 || !body.Redirect || len(answer.Cookies()) != 1 {
		t.Fatalf("begin: %d %+v %v", answer.StatusCode, body, err)
	}
	c := answer.Cookies()[0]
	if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode {
		t.Errorf("state cookie %v", c)
	}
	return body.URL, c
}

// finish comes back from the provider and tells where the browser goes.
func (p *portal) finish(t *testing.T, code, state string, cookies ...*http.Cookie) (status int, location string, session *http.Cookie) {
	t.Helper()
	query := url.Values{"state": {state}}
	if code != "" {
		query.Set("code", code)
	}
	answer := p.call(t, "GET", "/api/v1/auth/callback/corp?"+query.Encode(), "", cookies...)
	defer answer.Body.Close()
	for _, c := range answer.Cookies() {
		if strings.HasSuffix(c.Name, "session_token") {
			session = c
		}
	}
	return answer.StatusCode, answer.Header.Get("Location"), session
}

// signIn goes the whole way.
func (p *portal) signIn(t *testing.T) (location string, session *http.Cookie) {
	t.Helper()
	target, cookie := p.begin(t, "/app")
	code, state := p.issuer.visit(target)
	status, location, session := p.finish(t, code, state, cookie)
	if status != http.StatusFound {
		t.Fatalf("status %d", status)
	}
	return location, session
}

func (p *portal) says(claims map[string]any) {
	p.issuer.mu.Lock()
	defer p.issuer.mu.Unlock()
	p.issuer.claims = claims
}

func TestSignInAtAProvider(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		id := h.person(t, "ann@example.com", "", auth.RoleMember)
		p := h.portal(t, func(*auth.Provider) {})
		p.says(map[string]any{"sub": "s-ann", "email": "Ann@Example.com", "email_verified": true})
		location, session := p.signIn(t)
		if location != "/app" || session == nil || !session.Secure || !session.HttpOnly || session.SameSite != http.SameSiteLaxMode || session.MaxAge != 604800 {
			t.Fatalf("sent to %q with %v", location, session)
		}
		r := httptest.NewRequestWithContext(t.Context(), "GET", "https://host.example/", nil)
		r.AddCookie(session)
		principal, err := p.Authenticate(r)
		if err != nil || principal.UserID != id || principal.SessionID == "" {
			t.Fatalf("principal %+v, %v", principal, err)
		}
		// From now on the account counts, whatever its address becomes.
		p.says(map[string]any{"sub": "s-ann", "email": "other@example.com", "email_verified": false})
		if location, session = p.signIn(t); session == nil {
			t.Fatalf("the second time: sent to %q", location)
		}
		if _, err := h.SetDisabled(system(t), id, true); err != nil {
			t.Fatal(err)
		}
		if location, session = p.signIn(t); session != nil || location != "/oops?a=1&error=user_not_invited" {
			t.Errorf("a disabled user: sent to %q with %v", location, session)
		}
		got := strings.Join(h.actions(t, ""), " ")
		if want := "member.add session.begin session.begin session.end session.end user.create user.disable user.link_account"; got != want {
			t.Errorf("audit log\n got %s\nwant %s", got, want)
		}
	})
}

func TestProvidersAreNotBelievedBlindly(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		h.person(t, "ann@example.com", "", auth.RoleOwner)
		p := h.portal(t, func(*auth.Provider) {})
		other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		for name, test := range map[string]struct {
			claims map[string]any
			signer *ecdsa.PrivateKey
			want   string
		}{
			"an unverified address": {map[string]any{"email": "ann@example.com"}, nil, "user_not_invited"},
			"somebody unknown":      {map[string]any{"email": "bob@example.com", "email_verified": true}, nil, "user_not_invited"},
			"no address":            {map[string]any{"email_verified": true}, nil, "user_not_invited"},
			"another audience":      {map[string]any{"aud": "another", "email": "ann@example.com", "email_verified": true}, nil, "provider_failed"},
			"another issuer":        {map[string]any{"iss": "https://evil.example", "email": "ann@example.com", "email_verified": true}, nil, "provider_failed"},
			"another nonce":         {map[string]any{"nonce": "replayed", "email": "ann@example.com", "email_verified": true}, nil, "provider_failed"},
			"expired":               {map[string]any{"exp": h.time().Add(-time.Hour).Unix(), "email": "ann@example.com", "email_verified": true}, nil, "provider_failed"},
			"another key":           {map[string]any{"email": "ann@example.com", "email_verified": true}, other, "provider_failed"},
		} {
			p.says(test.claims)
			p.issuer.mu.Lock()
			p.issuer.signer = p.issuer.key
			if test.signer != nil {
				p.issuer.signer = test.signer
			}
			p.issuer.mu.Unlock()
			if location, session := p.signIn(t); session != nil || location != "/oops?a=1&error="+test.want {
				t.Errorf("%s: sent to %q with %v", name, location, session)
			}
		}
	})
}

func TestSignInsAtProvidersCannotBeForged(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		h.person(t, "ann@example.com", "", auth.RoleMember)
		p := h.portal(t, func(*auth.Provider) {})
		p.says(map[string]any{"email": "ann@example.com", "email_verified": true})
		target, cookie := p.begin(t, "/app")
		code, state := p.issuer.visit(target)
		if status, _, _ := p.finish(t, code, state); status != 400 {
			t.Errorf("without the browser's cookie: %d", status)
		}
		otherTarget, otherCookie := p.begin(t, "/app")
		otherCode, otherState := p.issuer.visit(otherTarget)
		if status, _, _ := p.finish(t, code, state, otherCookie); status != 400 {
			t.Errorf("with another browser's cookie: %d", status)
		}
		// The code of one sign-in does not go with another one's verifier.
		if _, location, session := p.finish(t, code, otherState, otherCookie); session != nil || location != "/oops?a=1&error=provider_failed" {
			t.Errorf("another sign-in's code: %q %v", location, session)
		}
		if status, _, _ := p.finish(t, otherCode, otherState, otherCookie); status != 400 {
			t.Errorf("a state used twice: %d", status)
		}
		if _, location, session := p.finish(t, "", state, cookie); session != nil || location != "/oops?a=1&error=provider_failed" {
			t.Errorf("the visitor declined: %q %v", location, session)
		}
		_, late := p.begin(t, "/app")
		h.advance(10*time.Minute + time.Millisecond)
		if status, _, _ := p.finish(t, code, late.Value, late); status != 400 {
			t.Errorf("too late: %d", status)
		}
		for _, callback := range []string{"//evil.example/", "https://evil.example/", "http://host.example/", `/\\evil.example`, "javascript:alert(1)", "https://host.example@evil.example/", "app"} {
			answer := p.call(t, "POST", "/api/v1/auth/sign-in/oauth2", `{"providerId":"corp","callbackURL":"`+strings.ReplaceAll(callback, `\\`, `\\\\`)+`"}`)
			if answer.Body.Close(); answer.StatusCode != 403 {
				t.Errorf("back to %s: %d", callback, answer.StatusCode)
			}
		}
		answer := p.call(t, "POST", "/api/v1/auth/sign-in/social", `{"provider":"nope"}`)
		if answer.Body.Close(); answer.StatusCode != 404 {
			t.Errorf("an unknown provider: %d", answer.StatusCode)
		}
	})
}

func TestProvidersMakeUsers(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		p := h.portal(t, func(c *auth.Provider) { c.CreateUsers, c.Role = true, auth.RoleViewer })
		p.says(map[string]any{"sub": "s9", "email": "new@example.com", "email_verified": "true", "name": "New Person"})
		_, session := p.signIn(t)
		if session == nil {
			t.Fatal("not signed in")
		}
		r := httptest.NewRequestWithContext(t.Context(), "GET", "https://host.example/", nil)
		r.AddCookie(session)
		principal, err := p.Authenticate(r)
		if err != nil {
			t.Fatal(err)
		}
		ctx := identity.With(t.Context(), principal)
		user, err := h.store.User(ctx, principal.UserID)
		if err != nil || user.Name != "New Person" || user.Email != "new@example.com" || !user.EmailVerified {
			t.Errorf("user %+v, %v", user, err)
		}
		if p.Can(ctx, identity.OperationList, "account") != nil || p.Can(ctx, identity.OperationCreate, "account") == nil {
			t.Error("the new user is no viewer")
		}
		// Such a user has no password, and none fits.
		if _, err := h.SignIn(ctx, "new@example.com", password, auth.Client{}); !errors.Is(err, auth.ErrInvalidLogin) {
			t.Errorf("SignIn = %v", err)
		}
	})
}

func TestProvidersThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	good := auth.Provider{ID: "corp", Issuer: "https://id.example", ClientID: "host"}
	for name, change := range map[string]func(*auth.Config, *auth.Provider){
		"no public URL": func(c *auth.Config, _ *auth.Provider) { c.PublicURL = "" },
		"no id":         func(_ *auth.Config, p *auth.Provider) { p.ID = "" },
		"a taken id":    func(_ *auth.Config, p *auth.Provider) { p.ID = "credential" },
		"no issuer":     func(_ *auth.Config, p *auth.Provider) { p.Issuer = "id.example" },
		"no client id":  func(_ *auth.Config, p *auth.Provider) { p.ClientID = "" },
	} {
		c, p := auth.Config{PublicURL: "https://host.example"}, good
		change(&c, &p)
		c.Providers = []auth.Provider{p}
		if _, err := auth.New(nil, c); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
