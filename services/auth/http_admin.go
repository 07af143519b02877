package auth

import (
	"net/http"
	"strconv"
)

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
