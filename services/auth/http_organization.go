package auth

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/auth/driver"
)

type organizationView struct {
	ID        string  `json:"id"`
	Name      string  `json:"name"`
	Slug      string  `json:"slug"`
	Logo      *string `json:"logo"`
	CreatedAt string  `json:"createdAt"`
}

func organizationViewOf(o driver.Organization) organizationView {
	return organizationView{ID: o.ID, Name: o.Name, Slug: o.Slug, CreatedAt: event.FormatTime(o.CreatedAt)}
}

type memberView struct {
	ID             string `json:"id"`
	OrganizationID string `json:"organizationId"`
	UserID         string `json:"userId"`
	// Role is the names of the roles with commas between.
	Role      string         `json:"role"`
	CreatedAt string         `json:"createdAt"`
	User      map[string]any `json:"user,omitempty"`
}

func memberViewOf(m driver.Member) memberView {
	return memberView{
		ID: m.ID, OrganizationID: publicOrganization(m.OrganizationID), UserID: m.UserID,
		Role: strings.Join(m.Roles, ","), CreatedAt: event.FormatTime(m.CreatedAt),
	}
}

func (m MemberView) view() memberView {
	v := memberViewOf(m.Member)
	v.User = map[string]any{"id": m.User.ID, "name": m.User.Name, "email": m.User.Email, "image": orNull(m.User.Image)}
	return v
}

// roleNames reads a role, a list of them, or names with commas between.
type roleNames []string

// UnmarshalJSON implements json.Unmarshaler.
func (n *roleNames) UnmarshalJSON(b []byte) error {
	var list []string
	if json.Unmarshal(b, &list) != nil {
		var one string
		if err := json.Unmarshal(b, &one); err != nil {
			return err
		}
		list = strings.Split(one, ",")
	}
	*n = nil
	for _, name := range list {
		if name = strings.TrimSpace(name); name != "" {
			*n = append(*n, name)
		}
	}
	return nil
}

// inOrganization refuses a request that names another organization than the
// caller's: it is not there for the caller.
func inOrganization(r *http.Request, id string) error {
	if id == "" {
		id = r.URL.Query().Get("organizationId")
	}
	if id != "" && internalOrganization(id) != identity.From(r.Context()).OrganizationID {
		return ErrOrganizationNotFound
	}
	return nil
}

func (s *Service) serveOrganizations(_ http.ResponseWriter, r *http.Request) (any, error) {
	list, err := s.Organizations(r.Context())
	if err != nil {
		return nil, err
	}
	views := make([]organizationView, 0, len(list))
	for _, o := range list {
		views = append(views, organizationViewOf(o))
	}
	return views, nil
}

func (s *Service) serveCreateOrganization(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in struct{ Name, Slug string }
	if err := readBody(r, &in, false); err != nil {
		return nil, err
	}
	o, err := s.CreateOrganization(r.Context(), in.Name, in.Slug)
	if err != nil {
		return nil, err
	}
	return organizationViewOf(o), nil
}

func (s *Service) serveUpdateOrganization(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in struct {
		OrganizationID string
		Data           struct{ Name, Slug string }
	}
	if err := readBody(r, &in, false); err != nil {
		return nil, err
	}
	if err := inOrganization(r, in.OrganizationID); err != nil {
		return nil, err
	}
	o, err := s.UpdateOrganization(r.Context(), in.Data.Name, in.Data.Slug)
	if err != nil {
		return nil, err
	}
	return organizationViewOf(o), nil
}

func (s *Service) serveFullOrganization(_ http.ResponseWriter, r *http.Request) (any, error) {
	if err := inOrganization(r, ""); err != nil {
		return nil, err
	}
	members, err := s.memberViews(r)
	if err != nil {
		return nil, err
	}
	o, err := s.organization(r.Context(), identity.From(r.Context()).OrganizationID)
	if err != nil {
		return nil, err
	}
	return struct {
		organizationView
		Members []memberView `json:"members"`
	}{organizationViewOf(o), members}, nil
}

func (s *Service) serveSetActive(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in struct {
		OrganizationID   *string
		OrganizationSlug string
	}
	if err := readBody(r, &in, false); err != nil {
		return nil, err
	}
	id := identity.DefaultOrganization
	switch {
	case in.OrganizationID != nil:
		id = *in.OrganizationID
	case in.OrganizationSlug != "":
		list, err := s.Organizations(r.Context())
		if err != nil {
			return nil, err
		}
		id = in.OrganizationSlug
		for _, o := range list {
			if o.Slug == in.OrganizationSlug {
				id = o.ID
			}
		}
	}
	o, err := s.Activate(r.Context(), id)
	if err != nil {
		return nil, err
	}
	return organizationViewOf(o), nil
}

func (s *Service) memberViews(r *http.Request) ([]memberView, error) {
	list, err := s.Members(r.Context())
	if err != nil {
		return nil, err
	}
	views := make([]memberView, 0, len(list))
	for _, m := range list {
		views = append(views, m.view())
	}
	return views, nil
}

func (s *Service) serveMembers(_ http.ResponseWriter, r *http.Request) (any, error) {
	if err := inOrganization(r, ""); err != nil {
		return nil, err
	}
	views, err := s.memberViews(r)
	if err != nil {
		return nil, err
	}
	return map[string]any{"members": views, "total": len(views)}, nil
}

func (s *Service) serveActiveMember(_ http.ResponseWriter, r *http.Request) (any, error) {
	if err := inOrganization(r, ""); err != nil {
		return nil, err
	}
	m, err := s.Self(r.Context())
	if err != nil {
		return nil, err
	}
	return m.view(), nil
}

func (s *Service) serveAddMember(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in struct {
		UserID, OrganizationID string
		Role                   roleNames
	}
	if err := readBody(r, &in, false); err != nil {
		return nil, err
	}
	organizationID := identity.From(r.Context()).OrganizationID
	if in.OrganizationID != "" {
		organizationID = internalOrganization(in.OrganizationID)
	}
	m, err := s.AddMember(r.Context(), organizationID, in.UserID, in.Role)
	if err != nil {
		return nil, err
	}
	return memberViewOf(m), nil
}

func (s *Service) serveSetRoles(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in struct {
		MemberID, OrganizationID string
		Role                     roleNames
	}
	if err := readBody(r, &in, false); err != nil {
		return nil, err
	}
	if err := inOrganization(r, in.OrganizationID); err != nil {
		return nil, err
	}
	m, err := s.SetRoles(r.Context(), in.MemberID, in.Role)
	if err != nil {
		return nil, err
	}
	return memberViewOf(m), nil
}

func (s *Service) serveRemoveMember(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in struct{ MemberIDOrEmail, OrganizationID string }
	if err := readBody(r, &in, false); err != nil {
		return nil, err
	}
	if err := inOrganization(r, in.OrganizationID); err != nil {
		return nil, err
	}
	id := in.MemberIDOrEmail
	if strings.Contains(id, "@") {
		members, err := s.Members(r.Context())
		if err != nil {
			return nil, err
		}
		for _, m := range members {
			if m.User.Email == normalEmail(id) {
				id = m.ID
			}
		}
	}
	m, err := s.RemoveMember(r.Context(), id)
	if err != nil {
		return nil, err
	}
	return map[string]any{"member": memberViewOf(m)}, nil
}

func (s *Service) serveLeave(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in struct{ OrganizationID string }
	if err := readBody(r, &in, false); err != nil {
		return nil, err
	}
	if err := inOrganization(r, in.OrganizationID); err != nil {
		return nil, err
	}
	self, err := s.Self(r.Context())
	if err != nil {
		return nil, err
	}
	m, err := s.RemoveMember(r.Context(), self.ID)
	if err != nil {
		return nil, err
	}
	return memberViewOf(m), nil
}

type roleView struct {
	Role        string   `json:"role"`
	Label       string   `json:"label"`
	Permissions []string `json:"permissions"`
	BuiltIn     bool     `json:"builtIn"`
}

func roleViewOf(r driver.Role) roleView {
	return roleView{Role: r.Name, Label: r.Label, Permissions: r.Permissions, BuiltIn: builtin[r.Name] != nil}
}

func (s *Service) serveRoles(_ http.ResponseWriter, r *http.Request) (any, error) {
	list, err := s.Roles(r.Context())
	if err != nil {
		return nil, err
	}
	views := make([]roleView, 0, len(list))
	for _, role := range list {
		views = append(views, roleViewOf(role))
	}
	return views, nil
}

func (s *Service) servePutRole(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in struct {
		Role, Label, OrganizationID string
		Permissions                 Scopes
	}
	if err := readBody(r, &in, true); err != nil {
		return nil, err
	}
	if err := inOrganization(r, in.OrganizationID); err != nil {
		return nil, err
	}
	role, err := s.PutRole(r.Context(), in.Role, in.Label, in.Permissions)
	if err != nil {
		return nil, err
	}
	return map[string]any{"success": true, "role": roleViewOf(role)}, nil
}

func (s *Service) serveDeleteRole(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in struct{ Role, OrganizationID string }
	if err := readBody(r, &in, false); err != nil {
		return nil, err
	}
	if err := inOrganization(r, in.OrganizationID); err != nil {
		return nil, err
	}
	if err := s.DeleteRole(r.Context(), in.Role); err != nil {
		return nil, err
	}
	return map[string]any{"success": true}, nil
}

type invitationView struct {
	ID             string  `json:"id"`
	OrganizationID string  `json:"organizationId"`
	Email          string  `json:"email"`
	Role           string  `json:"role"`
	Status         string  `json:"status"`
	InviterID      *string `json:"inviterId"`
	CreatedAt      string  `json:"createdAt"`
	ExpiresAt      string  `json:"expiresAt"`
}

func invitationViewOf(i driver.Invitation, status string) invitationView {
	return invitationView{
		ID: i.ID, OrganizationID: publicOrganization(i.OrganizationID), Email: i.Email, Role: strings.Join(i.Roles, ","), Status: status,
		InviterID: orNull(i.InviterID), CreatedAt: event.FormatTime(i.CreatedAt), ExpiresAt: event.FormatTime(i.ExpiresAt),
	}
}

func invitationViews(list []driver.Invitation) []invitationView {
	views := make([]invitationView, 0, len(list))
	for _, i := range list {
		views = append(views, invitationViewOf(i, "pending"))
	}
	return views
}

func (s *Service) serveInvite(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in struct {
		Email, OrganizationID string
		Role                  roleNames
	}
	if err := readBody(r, &in, false); err != nil {
		return nil, err
	}
	if err := inOrganization(r, in.OrganizationID); err != nil {
		return nil, err
	}
	i, err := s.Invite(r.Context(), in.Email, in.Role)
	if err != nil {
		return nil, err
	}
	return invitationViewOf(i, "pending"), nil
}

func (s *Service) serveInvitations(_ http.ResponseWriter, r *http.Request) (any, error) {
	if err := inOrganization(r, ""); err != nil {
		return nil, err
	}
	list, err := s.Invitations(r.Context())
	if err != nil {
		return nil, err
	}
	return invitationViews(list), nil
}

func (s *Service) serveOwnInvitations(_ http.ResponseWriter, r *http.Request) (any, error) {
	list, err := s.OwnInvitations(r.Context())
	if err != nil {
		return nil, err
	}
	return invitationViews(list), nil
}

func (s *Service) serveAnswer(accept bool) endpoint {
	status := "rejected"
	if accept {
		status = "accepted"
	}
	return func(_ http.ResponseWriter, r *http.Request) (any, error) {
		var in struct{ InvitationID string }
		if err := readBody(r, &in, false); err != nil {
			return nil, err
		}
		i, err := s.AnswerInvitation(r.Context(), in.InvitationID, accept)
		if err != nil {
			return nil, err
		}
		return map[string]any{"invitation": invitationViewOf(i, status)}, nil
	}
}

func (s *Service) serveCancelInvitation(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in struct{ InvitationID string }
	if err := readBody(r, &in, false); err != nil {
		return nil, err
	}
	i, err := s.CancelInvitation(r.Context(), in.InvitationID)
	if err != nil {
		return nil, err
	}
	return invitationViewOf(i, "canceled"), nil
}

func (s *Service) serveCreateUser(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in struct {
		Name, Email, Password, OrganizationID string
		Role                                  roleNames
	}
	if err := readBody(r, &in, true); err != nil {
		return nil, err
	}
	if len(in.Role) == 0 {
		in.Role = roleNames{RoleMember}
	}
	user, err := s.CreateUser(r.Context(), NewUser{
		Name: in.Name, Email: in.Email, Password: in.Password, EmailVerified: true,
		OrganizationID: internalOrganization(in.OrganizationID), Roles: in.Role,
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{"user": userViewOf(user)}, nil
}

// pageNumber reads a count from the query.
func pageNumber(r *http.Request, name string, initial, most int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return initial, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return 0, &refusal{http.StatusBadRequest, "INVALID_REQUEST", name + " must be a whole number of at most " + strconv.Itoa(most)}
	}
	return n, nil
}

func (s *Service) serveUsers(_ http.ResponseWriter, r *http.Request) (any, error) {
	limit, err := pageNumber(r, "limit", 100, 1000)
	if err != nil {
		return nil, err
	}
	offset, err := pageNumber(r, "offset", 0, 1<<30)
	if err != nil {
		return nil, err
	}
	users, total, err := s.Users(r.Context(), limit, offset)
	if err != nil {
		return nil, err
	}
	views := make([]userView, 0, len(users))
	for _, u := range users {
		views = append(views, userViewOf(u))
	}
	return map[string]any{"users": views, "total": total}, nil
}

func (s *Service) serveSetPassword(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in struct{ UserID, NewPassword string }
	if err := readBody(r, &in, false); err != nil {
		return nil, err
	}
	if err := s.SetPassword(r.Context(), in.UserID, in.NewPassword); err != nil {
		return nil, err
	}
	return map[string]any{"status": true}, nil
}

func (s *Service) serveDisable(disabled bool) endpoint {
	return func(_ http.ResponseWriter, r *http.Request) (any, error) {
		var in struct{ UserID string }
		if err := readBody(r, &in, false); err != nil {
			return nil, err
		}
		user, err := s.SetDisabled(r.Context(), in.UserID, disabled)
		if err != nil {
			return nil, err
		}
		return map[string]any{"user": userViewOf(user)}, nil
	}
}
