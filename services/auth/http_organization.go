package auth

import (
	"encoding/json"
	"net/http"
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
