package bench

import (
	"fmt"
	"os"
	"runtime/pprof"
)

// profile records one CPU profile, of the first stretch that is asked for.
type profile struct {
	// path is the file, "" for none.
	path string
	file *os.File // nil while nothing is recorded
	used bool
}

// start begins to record, unless there is a profile already.
func (p *profile) start() error {
	if p.path == "" || p.used {
		return nil
	}
	p.used = true
	f, err := os.Create(p.path)
	if err != nil {
		return fmt.Errorf("make the profile: %w", err)
	}
	p.file = f
	if err := pprof.StartCPUProfile(f); err != nil {
		return fmt.Errorf("start the profile: %w", err)
	}
	return nil
}

// stop ends the recording; without one it does nothing.
func (p *profile) stop() error {
	if p.file == nil {
		return nil
	}
	pprof.StopCPUProfile()
	f := p.file
	p.file = nil
	if err := f.Close(); err != nil {
		return fmt.Errorf("write the profile: %w", err)
	}
	return nil
}
