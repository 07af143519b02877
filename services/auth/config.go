package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Config tunes the service. The zero value works.
type Config struct {
	// CacheTTL is how long a key that was looked up is trusted without asking
	// the store again; a revocation on another node takes effect within it.
	// Default 2 s, at most 30 s; negative asks the store every time.
	CacheTTL time.Duration
	// TouchInterval is how often the times of last use are written, in one
	// statement for all keys used since. Default and minimum 1 minute, at most
	// 1 hour.
	TouchInterval time.Duration
	// PublicURL is the origin (https://host.example) at which browsers reach the
	// host; "" when they reach it as the requests say. With https cookies are
	// for TLS only.
	PublicURL string
	// AllowedOrigins lists the origins of other sites whose pages may sign in
	// here and act with the visitor's cookie.
	AllowedOrigins []string
	// Providers are OpenID Connect providers at which users may sign in. They
	// need a PublicURL.
	Providers []Provider
	// Administrator is made at the start, unless there is a user with that email
	// address. Nil makes none.
	Administrator *Administrator
	// OnSetupToken gets the token that makes the first administrator, once, when
	// there is no user and none is configured; nil makes no token.
	OnSetupToken func(ctx context.Context, token string)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Logger takes the service's log; nil discards it.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.CacheTTL == 0 {
		c.CacheTTL = 2 * time.Second
	}
	if c.TouchInterval == 0 {
		c.TouchInterval = time.Minute
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	if c.CacheTTL > 30*time.Second {
		return fmt.Errorf("auth: CacheTTL is %v, must be at most 30s", c.CacheTTL)
	}
	if c.TouchInterval < time.Minute || c.TouchInterval > time.Hour {
		return fmt.Errorf("auth: TouchInterval is %v, must be between 1m and 1h", c.TouchInterval)
	}
	if len(c.Providers) > 0 && c.PublicURL == "" {
		return errors.New("auth: PublicURL is required with Providers, which send visitors back to it")
	}
	return nil
}
