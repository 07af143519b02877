package rest

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"time"
)

// Config holds the settings of the server. The zero value works.
type Config struct {
	// Addr is the TCP address to listen on. Default 127.0.0.1:8080; port 0
	// takes any free one.
	Addr string
	// Environment is what discovery tells clients: production (default),
	// sandbox or development.
	Environment string
	// Version is the host's version in discovery. Default 0.0.0.
	Version string
	// AllowedOrigins lists the origins (https://app.example.com) whose pages
	// may call the API from a browser, with credentials. Default none, which
	// leaves pages of the server's own origin. * is refused: it would hand
	// every page on the web the visitor's session.
	AllowedOrigins []string
	// Console is the folder of a web console (its index.html and assets), which
	// is served under /_console/; empty for none.
	Console string
	// BodyLimit is the largest request body in bytes. Default 10 MiB.
	BodyLimit int64
	// MaxPageSize is how many records one answer may hold; a query without a
	// limit that would answer more is refused. Default 10,000.
	MaxPageSize int
	// QueryTimeout is how long a list may take the database. Default 10 s.
	QueryTimeout time.Duration
	// ImportLimit is the largest body of a streamed import in bytes. Default
	// 1 GiB.
	ImportLimit int64
	// HeaderTimeout is the time a client has to send a request's header.
	// Default 10 s.
	HeaderTimeout time.Duration
	// ReadTimeout is the time a client has to send a whole request. Default
	// 1 minute.
	ReadTimeout time.Duration
	// WriteTimeout is the time a client has to take each 64 KiB of an answer.
	// It does not limit how long a handler works. Default 1 minute.
	WriteTimeout time.Duration
	// IdleTimeout is how long a connection may wait for its next request.
	// Default 2 minutes.
	IdleTimeout time.Duration
	// MaxStreams is how many event streams a session or an API key may have
	// open on this host. Default 4, 1 to 1000.
	MaxStreams int
	// StreamQueue is how many events wait in memory for a client that reads
	// slowly; beyond that they are read from the log. Default 1024, 1 to 100000.
	StreamQueue int
	// StreamPatience is how long such a client may take to catch up before it is
	// cut off. Default 10 s.
	StreamPatience time.Duration
	// StreamHeartbeat is how often a quiet stream shows that it is alive. Default
	// 15 s, from 10 ms.
	StreamHeartbeat time.Duration
	// DrainTimeout is the time that running requests have to finish when the
	// host stops, before the services behind them stop. Half of what the stop
	// as a whole has is left to those services in any case. Default 10 s.
	DrainTimeout time.Duration
	// Logger takes one line per request and the causes of 5xx answers; nil
	// discards them. A plugin's server uses the host's logger when it is nil.
	Logger *slog.Logger
}

const (
	defaultBodyLimit = 10 << 20
	maxHeaderBytes   = 64 << 10
)

func (c Config) withDefaults() Config {
	setDefault(&c.Addr, "127.0.0.1:8080")
	setDefault(&c.Environment, "production")
	setDefault(&c.Version, "0.0.0")
	setDefault(&c.BodyLimit, defaultBodyLimit)
	setDefault(&c.MaxPageSize, 10_000)
	setDefault(&c.QueryTimeout, 10*time.Second)
	setDefault(&c.ImportLimit, 1<<30)
	setDefault(&c.HeaderTimeout, 10*time.Second)
	setDefault(&c.ReadTimeout, time.Minute)
	setDefault(&c.WriteTimeout, time.Minute)
	setDefault(&c.IdleTimeout, 2*time.Minute)
	setDefault(&c.DrainTimeout, 10*time.Second)
	setDefault(&c.MaxStreams, 4)
	setDefault(&c.StreamQueue, 1024)
	setDefault(&c.StreamPatience, 10*time.Second)
	setDefault(&c.StreamHeartbeat, 15*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) validate() error {
	var errs []error
	if !slices.Contains([]string{"production", "sandbox", "development"}, c.Environment) {
		errs = append(errs, fmt.Errorf("rest: Environment is %q, must be production, sandbox or development", c.Environment))
	}
	if c.BodyLimit < 1<<10 || c.BodyLimit > 1<<30 {
		errs = append(errs, fmt.Errorf("rest: BodyLimit is %d, must be between 1 KiB and 1 GiB", c.BodyLimit))
	}
	if c.MaxStreams < 1 || c.MaxStreams > 1000 {
		errs = append(errs, fmt.Errorf("rest: MaxStreams is %d, must be between 1 and 1000", c.MaxStreams))
	}
	if c.StreamQueue < 1 || c.StreamQueue > 100_000 {
		errs = append(errs, fmt.Errorf("rest: StreamQueue is %d, must be between 1 and 100000", c.StreamQueue))
	}
	if c.StreamPatience < 0 || c.StreamPatience > time.Hour {
		errs = append(errs, fmt.Errorf("rest: StreamPatience is %v, must be between 0 and 1h", c.StreamPatience))
	}
	if c.StreamHeartbeat < 10*time.Millisecond || c.StreamHeartbeat > time.Hour {
		errs = append(errs, fmt.Errorf("rest: StreamHeartbeat is %v, must be between 10ms and 1h", c.StreamHeartbeat))
	}
	if c.MaxPageSize < 1 || c.MaxPageSize > 1_000_000 {
		errs = append(errs, fmt.Errorf("rest: MaxPageSize is %d, must be between 1 and 1000000", c.MaxPageSize))
	}
	if c.ImportLimit < 1<<10 {
		errs = append(errs, fmt.Errorf("rest: ImportLimit is %d, must be at least 1 KiB", c.ImportLimit))
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"HeaderTimeout", c.HeaderTimeout}, {"ReadTimeout", c.ReadTimeout},
		{"WriteTimeout", c.WriteTimeout}, {"IdleTimeout", c.IdleTimeout}, {"QueryTimeout", c.QueryTimeout}, {"DrainTimeout", c.DrainTimeout},
	} {
		if f.value < 0 || f.value > time.Hour {
			errs = append(errs, fmt.Errorf("rest: %s is %v, must be between 0 and 1h", f.name, f.value))
		}
	}
	for _, origin := range c.AllowedOrigins {
		if err := checkOrigin(origin); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// checkOrigin accepts what a browser sends as Origin, and nothing that would
// never match one.
func checkOrigin(origin string) error {
	u, err := url.Parse(origin)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.Scheme+"://"+u.Host != origin {
		return fmt.Errorf("rest: AllowedOrigins holds %q, must be scheme and host like https://app.example.com", origin)
	}
	return nil
}
