package auth

import (
	"net/http"
	"slices"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/auth/driver"
)

type userView struct {
	Name          string  `json:"name"`
	Email         string  `json:"email"`
	EmailVerified bool    `json:"emailVerified"`
	Image         *string `json:"image"`
	CreatedAt     string  `json:"createdAt"`
	UpdatedAt     string  `json:"updatedAt"`
	ID            string  `json:"id"`
	Banned        bool    `json:"banned,omitempty"`
	// Positions and IsPlatformAdmin are told of the caller itself.
	Positions       []string `json:"positions,omitempty"`
	IsPlatformAdmin *bool    `json:"isPlatformAdmin,omitempty"`
}

func userViewOf(u driver.User) userView {
	return userView{
		Name: u.Name, Email: u.Email, EmailVerified: u.EmailVerified, Image: orNull(u.Image), ID: u.ID,
		CreatedAt: event.FormatTime(u.CreatedAt), UpdatedAt: event.FormatTime(u.UpdatedAt), Banned: !u.DisabledAt.IsZero(),
	}
}

type sessionView struct {
	ExpiresAt string `json:"expiresAt"`
	// Token is the session's own for the client that has it, else its id:
	// tokens are not stored.
	Token                string  `json:"token"`
	CreatedAt            string  `json:"createdAt"`
	UpdatedAt            string  `json:"updatedAt"`
	IPAddress            string  `json:"ipAddress"`
	UserAgent            string  `json:"userAgent"`
	UserID               string  `json:"userId"`
	ActiveOrganizationID *string `json:"activeOrganizationId"`
	ActiveTeamID         *string `json:"activeTeamId"`
	ID                   string  `json:"id"`
}

func sessionViewOf(s driver.Session, token string) sessionView {
	return sessionView{
		ExpiresAt: event.FormatTime(s.ExpiresAt), Token: token, CreatedAt: event.FormatTime(s.CreatedAt), UpdatedAt: event.FormatTime(s.UpdatedAt),
		IPAddress: s.IP, UserAgent: s.UserAgent, UserID: s.UserID, ActiveOrganizationID: orNull(s.OrganizationID), ID: s.ID,
	}
}

// serveConfig tells clients how one can sign in here, in the wrapped envelope.
func (s *Service) serveConfig(http.ResponseWriter, *http.Request) (any, error) {
	features := map[string]any{
		"twoFactor": false, "organization": true, "multiOrgEnabled": true, "tenancyPosture": "multi", "audiencePosture": "invite_only",
		"degradedTenancy": false, "oidcProvider": false, "sso": len(s.providers) > 0, "ssoEnforced": false, "deviceAuthorization": false,
		"admin": true, "phoneNumber": false, "phoneNumberOtp": false,
	}
	return map[string]any{"success": true, "data": map[string]any{
		"emailPassword":   map[string]any{"enabled": true, "disableSignUp": true, "requireEmailVerification": false},
		"socialProviders": s.providerViews(), "features": features,
	}}, nil
}

func (s *Service) serveBootstrapStatus(_ http.ResponseWriter, r *http.Request) (any, error) {
	users, err := s.HasUsers(r.Context())
	if err != nil {
		return nil, err
	}
	return map[string]any{"success": true, "data": map[string]any{"hasOwner": users, "needsBootstrap": !users}}, nil
}

func (s *Service) serveBootstrap(w http.ResponseWriter, r *http.Request) (any, error) {
	var in struct{ Token, Email, Password, Name string }
	if err := s.checkOrigin(r); err != nil {
		return nil, err
	}
	if err := readBody(r, &in, true); err != nil {
		return nil, err
	}
	signed, err := s.Bootstrap(r.Context(), in.Token, NewUser{Name: in.Name, Email: in.Email, Password: in.Password}, ClientAt(r))
	if err != nil {
		return nil, err
	}
	return s.hand(w, r, signed), nil
}

func (s *Service) serveSignIn(w http.ResponseWriter, r *http.Request) (any, error) {
	var in struct{ Email, Password string }
	if err := s.checkOrigin(r); err != nil {
		return nil, err
	}
	if err := readBody(r, &in, false); err != nil {
		return nil, err
	}
	if in.Email == "" || in.Password == "" || len(in.Email) > maxEmail || len(in.Password) > maxPassword {
		return nil, &refusal{http.StatusBadRequest, "VALIDATION_ERROR", "email and password are required"}
	}
	signed, err := s.SignIn(r.Context(), in.Email, in.Password, ClientAt(r))
	if err != nil {
		return nil, err
	}
	return s.hand(w, r, signed), nil
}

// hand gives a fresh session to the client, by every way that it may want.
func (s *Service) hand(w http.ResponseWriter, r *http.Request, in SignedIn) any {
	w.Header().Set("Set-Auth-Token", in.Signed)
	s.setCookie(w, r, in.Signed, int(sessionAge.Seconds()))
	return map[string]any{"redirect": false, "token": in.Token, "user": userViewOf(in.User)}
}

// serveSignUp: people are invited, or made by a manager of users.
func (s *Service) serveSignUp(http.ResponseWriter, *http.Request) (any, error) {
	return nil, &refusal{http.StatusForbidden, "SELF_REGISTRATION_CLOSED", "Self-registration is closed on this host."}
}

func (s *Service) serveSignOut(w http.ResponseWriter, r *http.Request) (any, error) {
	if credentialsOf(r).cookie {
		if err := s.checkCookieOrigin(r); err != nil {
			return nil, err
		}
	}
	if err := s.SignOut(r.Context()); err != nil {
		return nil, err
	}
	s.setCookie(w, r, "", -1)
	return map[string]any{"success": true}, nil
}

// serveGetSession answers null to callers without a session.
func (s *Service) serveGetSession(_ http.ResponseWriter, r *http.Request) (any, error) {
	caller := identity.From(r.Context())
	if caller.SessionID == "" {
		return nil, nil
	}
	session, err := s.sessionByID(r.Context(), caller.SessionID)
	if err != nil {
		return nil, err
	}
	user, err := s.user(r.Context(), caller.UserID)
	if err != nil {
		return nil, err
	}
	g, err := s.grantOf(r.Context(), caller.UserID, caller.OrganizationID)
	if err != nil {
		return nil, err
	}
	view := userViewOf(user)
	view.Positions = append(slices.Clone(g.roles), "everyone")
	admin := caller.OrganizationID == "" && slices.Contains(g.scopes, ScopeAdmin)
	view.IsPlatformAdmin = &admin
	token, err := s.tokenOf(r.Context(), credentialsOf(r).secret)
	if err != nil {
		return nil, err
	}
	return map[string]any{"user": view, "session": sessionViewOf(session, token)}, nil
}

func (s *Service) serveSessions(_ http.ResponseWriter, r *http.Request) (any, error) {
	list, err := s.Sessions(r.Context())
	if err != nil {
		return nil, err
	}
	views := make([]sessionView, 0, len(list))
	for _, session := range list {
		views = append(views, sessionViewOf(session, session.ID))
	}
	return views, nil
}

// serveRevokeSession takes the token of list-sessions, which is the session's
// id.
func (s *Service) serveRevokeSession(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in struct{ Token string }
	if err := readBody(r, &in, false); err != nil {
		return nil, err
	}
	if err := s.EndSession(r.Context(), in.Token); err != nil {
		return nil, err
	}
	return map[string]any{"status": true}, nil
}

func (s *Service) serveRevokeSessions(keepThis bool) endpoint {
	return func(_ http.ResponseWriter, r *http.Request) (any, error) {
		if err := s.EndSessions(r.Context(), keepThis); err != nil {
			return nil, err
		}
		return map[string]any{"status": true}, nil
	}
}

func (s *Service) serveChangePassword(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in struct{ CurrentPassword, NewPassword string }
	if err := readBody(r, &in, false); err != nil {
		return nil, err
	}
	if err := s.ChangePassword(r.Context(), in.CurrentPassword, in.NewPassword); err != nil {
		return nil, err
	}
	return map[string]any{"status": true}, nil
}

func (s *Service) serveUpdateUser(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in struct{ Name, Image *string }
	if err := readBody(r, &in, false); err != nil {
		return nil, err
	}
	user, err := s.Rename(r.Context(), in.Name, in.Image)
	if err != nil {
		return nil, err
	}
	return map[string]any{"status": true, "user": userViewOf(user)}, nil
}
