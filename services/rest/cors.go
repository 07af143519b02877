package rest

import (
	"net/http"
	"slices"
)

// What pages of allowed origins may send and read. The lists are part of the
// wire protocol.
const (
	corsMethods = "GET,POST,PUT,DELETE,PATCH,HEAD,OPTIONS"
	corsHeaders = "Content-Type,Authorization,X-Requested-With,X-Tenant-ID,X-Environment-Id,If-Match"
	corsExposed = "set-auth-token,x-objectstack-dropped-fields"
	// corsMaxAge is how long a browser may go without asking again, in seconds.
	corsMaxAge = "600"
)

// cors answers preflights of allowed origins and marks the answers that their
// pages may read. A page of the server's own origin needs neither; pages of
// other origins get neither, so that the browser keeps the answer from them.
func (s *Server) cors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		if origin == "" || !slices.Contains(s.cfg.AllowedOrigins, origin) {
			next.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Allow-Credentials", "true")
		if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
			h.Set("Access-Control-Expose-Headers", corsExposed)
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Access-Control-Allow-Methods", corsMethods)
		h.Set("Access-Control-Allow-Headers", corsHeaders)
		h.Set("Access-Control-Max-Age", corsMaxAge)
		w.WriteHeader(http.StatusNoContent)
	})
}
