package auth

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/identity"
)

// authBase is where the routes for users are. They answer bare JSON, and refuse
// with {"code", "message"}.
const authBase = "/api/v1/auth"

// refusal is a refusal in the words of the routes for users.
type refusal struct {
	status        int
	code, message string
}

func (e *refusal) Error() string { return e.code + ": " + e.message }

// endpoint serves a request; what it returns is answered.
type endpoint func(w http.ResponseWriter, r *http.Request) (any, error)

// bare makes a handler out of an endpoint.
func (s *Service) bare(serve endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(WithClient(r.Context(), ClientAt(r)))
		w.Header().Set("Cache-Control", "no-store")
		body, err := serve(w, r)
		if err != nil {
			s.refuseBare(w, r, err)
			return
		}
		write(w, http.StatusOK, body)
	})
}

// session is bare for endpoints about the caller's own sessions: API keys have
// none.
func (s *Service) session(serve endpoint) http.Handler {
	return s.bare(func(w http.ResponseWriter, r *http.Request) (any, error) {
		if identity.From(r.Context()).SessionID == "" {
			return nil, &refusal{http.StatusForbidden, "SESSION_REQUIRED", "Sign in: an API key cannot do this."}
		}
		return serve(w, r)
	})
}

func (s *Service) refuseBare(w http.ResponseWriter, r *http.Request, err error) {
	e := refusalOf(err)
	if e.status >= http.StatusInternalServerError {
		s.cfg.Logger.ErrorContext(r.Context(), "auth request failed", "path", r.URL.Path, "error", err)
	}
	var throttled *ThrottledError
	if errors.As(err, &throttled) {
		w.Header().Set("Retry-After", strconv.Itoa(int(throttled.After/time.Second)+1))
	}
	write(w, e.status, map[string]any{"code": e.code, "message": e.message})
}

// refusals are the errors that have words of their own for clients.
var refusals = []struct {
	err error
	refusal
}{
	{ErrInvalidLogin, refusal{401, "INVALID_EMAIL_OR_PASSWORD", "Invalid email or password"}},
	{ErrOrigin, refusal{403, "INVALID_ORIGIN", "Invalid origin"}},
	{ErrWrongPassword, refusal{400, "INVALID_PASSWORD", "Invalid password"}},
	{ErrEmailTaken, refusal{409, "USER_ALREADY_EXISTS", "A user with this email address already exists"}},
	{ErrSlugTaken, refusal{409, "ORGANIZATION_ALREADY_EXISTS", "An organization with this slug already exists"}},
	{ErrAlreadyMember, refusal{409, "USER_IS_ALREADY_A_MEMBER_OF_THIS_ORGANIZATION", "The user is a member already"}},
	{ErrLastAdmin, refusal{409, "LAST_ADMINISTRATOR", "The organization would have no administrator left"}},
	{ErrRoleInUse, refusal{409, "ROLE_IN_USE", "Members have this role"}},
	{ErrUserNotFound, refusal{404, "USER_NOT_FOUND", "User not found"}},
	{ErrSessionNotFound, refusal{404, "SESSION_NOT_FOUND", "Session not found"}},
	{ErrOrganizationNotFound, refusal{404, "ORGANIZATION_NOT_FOUND", "Organization not found"}},
	{ErrMemberNotFound, refusal{404, "MEMBER_NOT_FOUND", "Member not found"}},
	{ErrRoleNotFound, refusal{404, "ROLE_NOT_FOUND", "Role not found"}},
	{ErrInvitationNotFound, refusal{404, "INVITATION_NOT_FOUND", "Invitation not found"}},
	{ErrProviderNotFound, refusal{404, "PROVIDER_NOT_FOUND", "There is no such provider"}},
	{ErrCallback, refusal{403, "INVALID_CALLBACK_URL", "Invalid callbackURL"}},
	{ErrState, refusal{400, "STATE_MISMATCH", "The sign-in is not one that this browser began, or it took too long"}},
	{ErrNotInvited, refusal{403, "USER_NOT_INVITED", "No user of this host belongs to this account"}},
	{ErrProvider, refusal{502, "PROVIDER_FAILED", "The provider did not confirm the sign-in"}},
	{ErrSetupClosed, refusal{403, "SETUP_CLOSED", "The first administrator cannot be made with this token"}},
	{ErrNoUsers, refusal{404, "RESOURCE_NOT_FOUND", "This host has API keys only"}},
	{identity.ErrUnauthenticated, refusal{401, "UNAUTHENTICATED", "Authentication is required to access this endpoint."}},
}

// refusalOf tells a client what it may know of an error.
func refusalOf(err error) *refusal {
	var own *refusal
	var throttled *ThrottledError
	var denied *identity.DeniedError
	if errors.As(err, &own) {
		return own
	}
	if errors.As(err, &throttled) {
		return &refusal{http.StatusTooManyRequests, "TOO_MANY_REQUESTS", "Too many attempts. Try again later."}
	}
	for i := range refusals {
		if errors.Is(err, refusals[i].err) {
			return &refusals[i].refusal
		}
	}
	status, code, message := classify(err)
	if code == "PERMISSION_DENIED" && errors.As(err, &denied) {
		var exceeds *ExceedsError
		if message = "You do not have the permission to do this."; errors.As(err, &exceeds) {
			message = "This allows more than you may do yourself."
		}
	}
	return &refusal{status, code, message}
}

// readBody reads a JSON object; an empty body is an empty one. Clients send more
// keys than are needed here, so that unknown ones are passed over unless strict.
func readBody(r *http.Request, into any, strict bool) error {
	dec := json.NewDecoder(r.Body)
	if strict {
		dec.DisallowUnknownFields()
	}
	err := dec.Decode(into)
	if err == nil {
		_, err = dec.Token()
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return tooLarge
	case !errors.Is(err, io.EOF):
		return &refusal{http.StatusBadRequest, "INVALID_REQUEST", "Request body must be a JSON object of the right shape."}
	}
	return nil
}

// userRoutes are the routes for users, sessions and organizations.
func (p *Plugin) userRoutes() []core.Route {
	s := p.service
	const get, post = http.MethodGet, http.MethodPost
	open := func(method, path, summary string, serve endpoint) core.Route {
		return core.Route{Method: method, Pattern: authBase + path, Anonymous: true, Summary: summary, Handler: s.bare(serve)}
	}
	known := func(method, path, summary string, serve endpoint) core.Route {
		return core.Route{Method: method, Pattern: authBase + path, Summary: summary, Handler: s.bare(serve)}
	}
	session := func(method, path, summary string, serve endpoint) core.Route {
		return core.Route{Method: method, Pattern: authBase + path, Summary: summary, Handler: s.session(serve)}
	}
	needs := func(permission, method, path, summary string, serve endpoint) core.Route {
		return core.Route{Method: method, Pattern: authBase + path, Permission: permission, Summary: summary, Handler: s.bare(serve)}
	}
	members, users := PermissionManageMembers, PermissionManageUsers
	return []core.Route{
		open(get, "/config", "Tell how one can sign in", s.serveConfig),
		open(get, "/bootstrap-status", "Tell whether there is a user", s.serveBootstrapStatus),
		open(post, "/bootstrap", "Make the first administrator with the setup token", s.serveBootstrap),
		open(post, "/sign-in/email", "Sign in with email and password", s.serveSignIn),
		open(post, "/sign-in/social", "Begin to sign in at a provider", s.serveSignInProvider),
		open(post, "/sign-in/oauth2", "Begin to sign in at a provider", s.serveSignInProvider),
		{
			Method: get, Pattern: authBase + "/callback/{provider}", Anonymous: true, Summary: "Come back from a provider",
			Handler: http.HandlerFunc(s.serveCallback),
		},
		open(post, "/sign-up/email", "Refuse self-registration", s.serveSignUp),
		open(post, "/sign-out", "End the session", s.serveSignOut),
		open(get, "/get-session", "Tell who is signed in", s.serveGetSession),
		known(get, "/me/permissions", "Tell what the caller may do", p.servePermissions),
		session(get, "/list-sessions", "List the caller's sessions", s.serveSessions),
		session(post, "/revoke-session", "End one of the caller's sessions", s.serveRevokeSession),
		session(post, "/revoke-sessions", "End all of the caller's sessions", s.serveRevokeSessions(false)),
		session(post, "/revoke-other-sessions", "End the caller's other sessions", s.serveRevokeSessions(true)),
		session(post, "/change-password", "Change the caller's password", s.serveChangePassword),
		session(post, "/update-user", "Change the caller's name and image", s.serveUpdateUser),

		known(get, "/organization/list", "List the caller's organizations", s.serveOrganizations),
		needs(PermissionManageOrganizations, post, "/organization/create", "Make an organization", s.serveCreateOrganization),
		needs(members, post, "/organization/update", "Change the organization's name and slug", s.serveUpdateOrganization),
		known(get, "/organization/get-full-organization", "Read the organization with its members", s.serveFullOrganization),
		session(post, "/organization/set-active", "Act in another organization", s.serveSetActive),
		known(get, "/organization/list-members", "List the organization's members", s.serveMembers),
		known(get, "/organization/get-active-member", "Read the caller's membership", s.serveActiveMember),
		needs(users, post, "/organization/add-member", "Make a user a member", s.serveAddMember),
		needs(members, post, "/organization/update-member-role", "Change what a member is", s.serveSetRoles),
		needs(members, post, "/organization/remove-member", "End a membership", s.serveRemoveMember),
		session(post, "/organization/leave", "End the caller's own membership", s.serveLeave),
		needs(members, post, "/organization/invite-member", "Offer a membership", s.serveInvite),
		needs(members, get, "/organization/list-invitations", "List the organization's invitations", s.serveInvitations),
		session(get, "/organization/list-user-invitations", "List the caller's invitations", s.serveOwnInvitations),
		session(post, "/organization/accept-invitation", "Accept an invitation", s.serveAnswer(true)),
		session(post, "/organization/reject-invitation", "Decline an invitation", s.serveAnswer(false)),
		needs(members, post, "/organization/cancel-invitation", "Take an invitation back", s.serveCancelInvitation),
		known(get, "/organization/list-roles", "List the organization's roles", s.serveRoles),
		needs(members, post, "/organization/create-role", "Make or change a role", s.servePutRole),
		needs(members, post, "/organization/update-role", "Make or change a role", s.servePutRole),
		needs(members, post, "/organization/delete-role", "Remove a role", s.serveDeleteRole),

		needs(users, post, "/admin/create-user", "Make a user", s.serveCreateUser),
		needs(users, get, "/admin/list-users", "List all users", s.serveUsers),
		needs(users, post, "/admin/set-user-password", "Give a user another password", s.serveSetPassword),
		needs(users, post, "/admin/ban-user", "Shut a user out", s.serveDisable(true)),
		needs(users, post, "/admin/unban-user", "Let a user in again", s.serveDisable(false)),
	}
}
