package rest

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"
)

// observe is the outermost layer: it gives the request its id, limits its body,
// answers panics, and writes one log line. The line has neither the query nor
// any header, where secrets travel.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		x := &exchange{requestID: requestID(r)}
		r = r.WithContext(contextWith(r.Context(), x))
		rec := newRecorder(w, s.cfg.WriteTimeout)
		setHeaders(rec.Header(), x.requestID)
		x.body = r.Body
		r.Body = http.MaxBytesReader(w, r.Body, s.cfg.BodyLimit)
		aborted := s.serve(next, rec, r, x)
		rec.extend() // for what net/http still has to flush
		s.log(r, x, rec, time.Since(began))
		if aborted {
			panic(http.ErrAbortHandler)
		}
	})
}

// serve runs the handler and turns a panic into a 500. A handler that had begun
// to answer is cut off instead, so that the client cannot take half an answer for
// a whole one; that is reported as aborted.
func (s *Server) serve(next http.Handler, rec *recorder, r *http.Request, x *exchange) (aborted bool) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if v != http.ErrAbortHandler { //nolint:errorlint // the documented sentinel is compared as net/http does
			x.cause, x.stack = fmt.Errorf("handler panicked: %v", v), string(debug.Stack())
		}
		if aborted = rec.status != 0 || x.cause == nil; aborted {
			return
		}
		fail(rec, r, familyOf(r.URL.Path), x.cause)
	}()
	next.ServeHTTP(rec, r)
	return false
}

// setHeaders sets what every answer has. Handlers may replace it.
func setHeaders(h http.Header, id string) {
	h.Set("X-Request-Id", id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Origin")
}

// log writes the line of one request. Errors that a client can mend are
// information; only the host's own are errors.
func (s *Server) log(r *http.Request, x *exchange, rec *recorder, took time.Duration) {
	level, status := slog.LevelInfo, rec.status
	switch {
	case x.cancelled:
		status = 499 // what proxies log for a client that went away
	case status == 0:
		status = http.StatusOK
	}
	attrs := []slog.Attr{
		slog.String("request_id", x.requestID),
		slog.String("method", r.Method),
		slog.String("path", clip(r.URL.Path)),
		slog.String("route", x.route),
		slog.Int("status", status),
		slog.Int64("bytes", rec.bytes),
		slog.Duration("duration", took),
		slog.String("remote", r.RemoteAddr),
	}
	for key, value := range map[string]string{
		"user_id": x.principal.UserID, "key_id": x.principal.KeyID, "organization_id": x.principal.OrganizationID,
	} {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	if x.cause != nil && !x.cancelled {
		level = slog.LevelError
		attrs = append(attrs, slog.Any("error", x.cause))
		if x.stack != "" {
			attrs = append(attrs, slog.String("route_plugin", x.plugin), slog.String("stack", x.stack))
		}
	}
	s.cfg.Logger.LogAttrs(r.Context(), level, "request", attrs...)
}

// clip bounds a client's text in a log line.
func clip(s string) string {
	const most = 300
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "�")
}

// plainText refuses paths with bytes that no database stores as text.
func plainText(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !storable(r.URL.Path) {
			fail(w, r, familyOf(r.URL.Path), invalidRequest("Request path must be valid UTF-8 without NUL."))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func storable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
