package pluginhost

import (
	"fmt"
	"time"
)

// RestartPolicy tells when a plugin that failed is started again. Zero fields
// take the defaults.
type RestartPolicy struct {
	// MinBackoff and MaxBackoff bound the pause, which doubles with each
	// failure in a row; a random part between half and all of it is waited.
	// Default 500 ms and 1 min.
	MinBackoff, MaxBackoff time.Duration
	// MaxFailures within Window end it: the plugin is failed until somebody
	// restarts it. Default 8 within 10 min.
	MaxFailures int
	Window      time.Duration
	// StableAfter is how long a plugin must have been ready for its earlier
	// failures to be forgotten. Default 2 min.
	StableAfter time.Duration
}

func (p RestartPolicy) withDefaults() RestartPolicy {
	if p.MinBackoff == 0 {
		p.MinBackoff = 500 * time.Millisecond
	}
	if p.MaxBackoff == 0 {
		p.MaxBackoff = time.Minute
	}
	if p.MaxFailures == 0 {
		p.MaxFailures = 8
	}
	if p.Window == 0 {
		p.Window = 10 * time.Minute
	}
	if p.StableAfter == 0 {
		p.StableAfter = 2 * time.Minute
	}
	return p
}

func (p RestartPolicy) validate() error {
	switch {
	case p.MinBackoff < time.Millisecond || p.MaxBackoff < p.MinBackoff:
		return fmt.Errorf("pluginhost: RestartPolicy: MinBackoff must be from 1ms up to MaxBackoff")
	case p.MaxFailures < 1:
		return fmt.Errorf("pluginhost: RestartPolicy.MaxFailures must be at least 1")
	case p.Window <= 0 || p.StableAfter <= 0:
		return fmt.Errorf("pluginhost: RestartPolicy: Window and StableAfter must be positive")
	}
	return nil
}

// failures are the recent failures of a plugin.
type failures struct{ at []time.Time }

// add notes a failure after the plugin was ready for up, and returns how long
// to wait before the next start. open tells that there is none. jitter is
// between 0 and 1.
func (f *failures) add(p RestartPolicy, now time.Time, up time.Duration, jitter float64) (wait time.Duration, open bool) {
	if up >= p.StableAfter {
		f.at = nil
	}
	for len(f.at) > 0 && now.Sub(f.at[0]) > p.Window {
		f.at = f.at[1:]
	}
	f.at = append(f.at, now)
	if len(f.at) >= p.MaxFailures {
		return 0, true
	}
	wait = p.MinBackoff
	for range len(f.at) - 1 {
		if wait *= 2; wait >= p.MaxBackoff {
			wait = p.MaxBackoff
			break
		}
	}
	return wait/2 + time.Duration(jitter*float64(wait/2)), false
}
