package auth

import (
	"net/http"
	"strings"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/auth/driver"
)

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
