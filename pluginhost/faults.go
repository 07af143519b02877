package pluginhost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/objecthost/objecthost/pluginhost/bundle"
	"github.com/objecthost/objecthost/pluginsdk"
	pluginv1 "github.com/objecthost/objecthost/pluginsdk/proto/v1"
)

// MismatchError is a plugin whose program says something else than its
// manifest.
type MismatchError struct {
	Plugin, Field, Manifest, Program string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("pluginhost: plugin %s: %s is %q in the manifest and %q in the program", e.Plugin, e.Field, e.Manifest, e.Program)
}

func agrees(m bundle.Manifest, says *pluginv1.Description) error {
	if says.Id != m.ID {
		return &MismatchError{m.Name, "id", m.ID, says.Id}
	}
	if says.Version != m.Version {
		return &MismatchError{m.Name, "version", m.Version, says.Version}
	}
	var declared pluginsdk.Declaration
	if err := json.Unmarshal(says.Contributions, &declared); err != nil {
		return &MismatchError{m.Name, "contributes", "", err.Error()}
	}
	want, err := keysOf(m.Contributes)
	if err != nil {
		return err
	}
	got, err := keysOf(declared)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if !bytes.Equal(want[key], got[key]) {
			return &MismatchError{m.Name, "contributes." + key, string(want[key]), string(got[key])}
		}
		delete(got, key)
	}
	for _, key := range slices.Sorted(maps.Keys(got)) {
		return &MismatchError{m.Name, "contributes." + key, "", string(got[key])}
	}
	return nil
}

// keysOf is a declaration by its keys, to find the one that differs.
func keysOf(d pluginsdk.Declaration) (map[string]json.RawMessage, error) {
	text, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	keys := map[string]json.RawMessage{}
	return keys, json.Unmarshal(text, &keys)
}

// StartError tells why a plugin did not start.
type StartError struct {
	Plugin string
	// Noise is what it printed to standard output instead of the handshake,
	// Exit how it ended, if it did.
	Noise string
	Exit  error
	Err   error
}

func (e *StartError) Error() string {
	text := fmt.Sprintf("pluginhost: start plugin %s: %v", e.Plugin, e.Err)
	if e.Exit != nil {
		text += fmt.Sprintf(" (%v)", e.Exit)
	}
	if e.Noise != "" {
		text += fmt.Sprintf("; it printed to standard output before the handshake: %q", e.Noise)
	}
	return text
}

func (e *StartError) Unwrap() error { return e.Err }

// explain adds what the process left to the error of a start.
func (i *instance) explain(err error) error {
	e := &StartError{Plugin: i.name, Noise: i.process.Noise(), Err: err}
	if i.plugin == nil && !errors.Is(err, context.DeadlineExceeded) || pluginsdk.IsCode(err, pluginsdk.CodeUnavailable) {
		// Its output or its connection has ended, the process itself follows.
		timer := time.NewTimer(time.Second)
		defer timer.Stop()
		select {
		case <-i.process.Done():
		case <-timer.C:
		}
	}
	select {
	case <-i.process.Done():
		e.Exit = i.process.ExitError()
	default:
	}
	return e
}

// ExitError is a plugin that ended by itself.
type ExitError struct {
	Plugin string
	// Err is how, nil for exit code 0.
	Err error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("pluginhost: plugin %s ended with exit code 0", e.Plugin)
	}
	return fmt.Sprintf("pluginhost: plugin %s ended: %v", e.Plugin, e.Err)
}

func (e *ExitError) Unwrap() error { return e.Err }
