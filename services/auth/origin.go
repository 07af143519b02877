package auth

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// ErrOrigin is returned for a request that a page of another site has made, or
// may have made, with the visitor's cookie.
var ErrOrigin = errors.New("auth: the request comes from an origin that is not trusted")

// Names of the session's cookie. Browsers take the second one over TLS only and
// never let a page on plain HTTP set it.
const (
	cookieName       = "better-auth.session_token"
	secureCookieName = "__Secure-" + cookieName
)

// sessionCookie returns the session that a browser sent along.
func sessionCookie(r *http.Request) (string, bool) {
	for _, name := range []string{secureCookieName, cookieName} {
		c, err := r.Cookie(name)
		if err != nil || c.Value == "" {
			continue
		}
		if value, err := url.PathUnescape(c.Value); err == nil {
			return value, true
		}
		return "", true
	}
	return "", false
}

// secure reports whether the client talks TLS, to this process or to the proxy
// at the public URL.
func (s *Service) secure(r *http.Request) bool {
	return r.TLS != nil || strings.HasPrefix(s.cfg.PublicURL, "https://")
}

// setCookie hands the session to a browser. maxAge is in seconds; negative takes
// the cookie away.
func (s *Service) setCookie(w http.ResponseWriter, r *http.Request, value string, maxAge int) {
	c := http.Cookie{
		Name: cookieName, Value: url.QueryEscape(value), Path: "/", MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	}
	if s.secure(r) {
		c.Name, c.Secure = secureCookieName, true
	}
	http.SetCookie(w, &c)
}

// trusted reports whether pages of an origin may sign in and act with the
// visitor's cookie: those of the host itself, and those that are allowed.
func (s *Service) trusted(r *http.Request, origin string) bool {
	if origin == s.cfg.PublicURL || slices.Contains(s.cfg.AllowedOrigins, origin) {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
		return false
	}
	// A page on plain HTTP must not pass for the same host on TLS.
	return u.Scheme == "https" || u.Scheme == "http" && !s.secure(r)
}

// checkOrigin refuses a request whose Origin is not trusted. Browsers send one
// with every request that a page of another site makes and that may change
// something; programs send none.
func (s *Service) checkOrigin(r *http.Request) error {
	if origin := r.Header.Get("Origin"); origin != "" && !s.trusted(r, origin) {
		return ErrOrigin
	}
	return nil
}

// checkCookieOrigin is stricter where a browser's cookie alone speaks for the
// request: what may change something has to say where it comes from.
func (s *Service) checkCookieOrigin(r *http.Request) error {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return nil
	}
	if r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") != "same-origin" {
		return ErrOrigin
	}
	return s.checkOrigin(r)
}

// ClientAt tells where a request came from: the other end of its connection.
func ClientAt(r *http.Request) Client {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return Client{IP: host, UserAgent: r.UserAgent()}
}
