package storage

import (
	"fmt"
	"time"
)

// Config holds what may be tuned. The zero value works.
type Config struct {
	// MaxConns bounds the connections: on Postgres those of the pool
	// (default 10), on SQLite those that read (default 4); the one that
	// writes comes on top. 1 to 1000.
	MaxConns int
	// ConnMaxIdle closes a connection that was unused for so long. Default
	// 5 minutes, at least a second.
	ConnMaxIdle time.Duration
	// WriterWait bounds the wait for SQLite's one writer; a wait that ends
	// there gives a *WriterBusyError. Default 10 seconds, at least 10 ms.
	WriterWait time.Duration
	// TxAttempts is how often InTx calls its function at most when the
	// transaction loses against others. Default 6, 1 to 100.
	TxAttempts int
	// ConnectTimeout bounds one attempt to connect to Postgres. Default 5
	// seconds, at least 10 ms.
	ConnectTimeout time.Duration
}

// WithDefaults returns a copy with every zero field set to its default, or an
// error that names a field out of its bounds. Drivers call it.
func (c Config) WithDefaults(dialect Dialect) (Config, error) {
	if c.MaxConns == 0 {
		c.MaxConns = 10
		if dialect == SQLite {
			c.MaxConns = 4
		}
	}
	setDefault(&c.ConnMaxIdle, 5*time.Minute)
	setDefault(&c.WriterWait, 10*time.Second)
	setDefault(&c.ConnectTimeout, 5*time.Second)
	if c.TxAttempts == 0 {
		c.TxAttempts = 6
	}
	return c, c.validate()
}

func setDefault(d *time.Duration, v time.Duration) {
	if *d == 0 {
		*d = v
	}
}

func (c Config) validate() error {
	if c.MaxConns < 1 || c.MaxConns > 1000 {
		return fmt.Errorf("storage: MaxConns must be 1 to 1000, not %d", c.MaxConns)
	}
	if c.TxAttempts < 1 || c.TxAttempts > 100 {
		return fmt.Errorf("storage: TxAttempts must be 1 to 100, not %d", c.TxAttempts)
	}
	for _, f := range []struct {
		name     string
		got, min time.Duration
	}{
		{"ConnMaxIdle", c.ConnMaxIdle, time.Second},
		{"WriterWait", c.WriterWait, 10 * time.Millisecond},
		{"ConnectTimeout", c.ConnectTimeout, 10 * time.Millisecond},
	} {
		if f.got < f.min {
			return fmt.Errorf("storage: %s must be at least %v, not %v", f.name, f.min, f.got)
		}
	}
	return nil
}
