package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Config holds the settings of a [Kernel]. The zero value works.
type Config struct {
	// Logger receives the kernel's and the plugins' records; nil discards them.
	Logger *slog.Logger
	// InitTimeout, StartTimeout and StopTimeout bound one call of a plugin that
	// does not say otherwise in its manifest. Default 30 s each. StopTimeout
	// also bounds each disposer.
	InitTimeout, StartTimeout, StopTimeout time.Duration
	// HookTimeout bounds each handler of the kernel's own hooks. Default 30 s.
	HookTimeout time.Duration
	// AbandonAfter is how long a call may take to return after its context has
	// ended. Then the kernel goes on without it. Default 1 s.
	AbandonAfter time.Duration
	// Health is how plugins are checked that do not say otherwise.
	Health HealthPolicy
	// RequiredServices must be registered when all plugins have started.
	RequiredServices []string
	// PluginConfig holds configurations by plugin ID. An entry for a plugin
	// that is not there, or that takes no configuration, fails the boot.
	PluginConfig map[string]json.RawMessage
	// Validator checks configurations against the plugins' schemas. It is
	// required when a plugin with a schema is configured. A plugin with a
	// schema and without a configuration is checked as {}.
	Validator ConfigValidator
}

// ConfigValidator checks a plugin's configuration against its JSON Schema. The
// kernel itself knows nothing about JSON Schema.
type ConfigValidator interface {
	ValidateConfig(plugin string, schema, config json.RawMessage) error
}

// HealthPolicy sets how a plugin's health is judged.
type HealthPolicy struct {
	// Interval is the time between the end of one check and the start of the
	// next. Default 30 s.
	Interval time.Duration
	// Timeout bounds one check. Default 5 s.
	Timeout time.Duration
	// FailureThreshold is the number of failures in a row that make a plugin
	// unhealthy; before that it is degraded. Default 3.
	FailureThreshold int
	// SuccessThreshold is the number of successes in a row that make it
	// healthy again. Default 1.
	SuccessThreshold int
}

func (p HealthPolicy) withDefaults(d HealthPolicy) HealthPolicy {
	return HealthPolicy{
		Interval:         or(p.Interval, d.Interval),
		Timeout:          or(p.Timeout, d.Timeout),
		FailureThreshold: or(p.FailureThreshold, d.FailureThreshold),
		SuccessThreshold: or(p.SuccessThreshold, d.SuccessThreshold),
	}
}

// invalid names the first negative field, or "".
func (p HealthPolicy) invalid() string {
	switch {
	case p.Interval < 0:
		return "Health.Interval"
	case p.Timeout < 0:
		return "Health.Timeout"
	case p.FailureThreshold < 0:
		return "Health.FailureThreshold"
	case p.SuccessThreshold < 0:
		return "Health.SuccessThreshold"
	}
	return ""
}

func (c Config) withDefaults() Config {
	const call = 30 * time.Second
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.InitTimeout = or(c.InitTimeout, call)
	c.StartTimeout = or(c.StartTimeout, call)
	c.StopTimeout = or(c.StopTimeout, call)
	c.HookTimeout = or(c.HookTimeout, call)
	c.AbandonAfter = or(c.AbandonAfter, time.Second)
	c.Health = c.Health.withDefaults(HealthPolicy{
		Interval: 30 * time.Second, Timeout: 5 * time.Second, FailureThreshold: 3, SuccessThreshold: 1,
	})
	return c
}

// validate joins a *ConfigError for each negative setting.
func (c Config) validate() error {
	var errs []error
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"InitTimeout", c.InitTimeout},
		{"StartTimeout", c.StartTimeout},
		{"StopTimeout", c.StopTimeout},
		{"HookTimeout", c.HookTimeout},
		{"AbandonAfter", c.AbandonAfter},
	} {
		if f.value < 0 {
			errs = append(errs, &ConfigError{Field: f.name, Err: fmt.Errorf("must not be negative, is %s", f.value)})
		}
	}
	if f := c.Health.invalid(); f != "" {
		errs = append(errs, &ConfigError{Field: f, Err: errors.New("must not be negative")})
	}
	return errors.Join(errs...)
}

func or[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}
