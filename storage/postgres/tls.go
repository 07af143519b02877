package postgres

import (
	"net"
	"net/url"
	"os"
)

// withoutNeedlessTLS returns a DSN under which connections that do not leave
// this machine are encrypted only when the server asks for it: what everybody
// can read who could read the connection is the process's own memory. A DSN or
// an environment that chooses an sslmode is left alone.
func withoutNeedlessTLS(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil || os.Getenv("PGSSLMODE") != "" || os.Getenv("PGSERVICE") != "" {
		return dsn
	}
	q := u.Query()
	ip := net.ParseIP(u.Hostname())
	if q.Has("sslmode") || q.Has("host") || q.Has("service") || u.Hostname() != "localhost" && !ip.IsLoopback() {
		return dsn
	}
	q.Set("sslmode", "allow")
	u.RawQuery = q.Encode()
	return u.String()
}
