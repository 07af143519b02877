package pluginhost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/pluginhost/bundle"
	"github.com/objecthost/objecthost/pluginhost/process"
)

// Config tells a [Manager] where plugins are and how they are run. Dir is
// required.
type Config struct {
	// Dir is the folder of the plugins: a bundle per sub-folder, the lock file,
	// and the keys of those whose signatures count under trust/.
	Dir string
	// RunDir takes a folder per running process, with its socket and the copy
	// of its files. Its path is short, because sockets' are. Default .run in
	// Dir.
	RunDir string
	// Dev runs plugins that are not signed or not in the lock file, and grants
	// what they request. It is for the machines of their authors.
	Dev bool
	// Validator checks the configurations of plugins that are installed while
	// the host runs; the kernel's. Nil checks none of them.
	Validator core.ConfigValidator
	// Env names further variables of the host's environment that plugins get,
	// besides PATH, TZ, LANG, TMPDIR, SSL_CERT_FILE, SSL_CERT_DIR and those of
	// proxies.
	Env []string
	// Limits bound each process. Zero fields take the defaults: 1 GiB of
	// memory, 1024 files, and, where there is a control group, 512 threads and
	// processes; CPU is not bounded.
	Limits process.Limits
	// Cgroup is the folder of a control group that plugins get groups of their
	// own in, "none" for no groups. Default the group of the host, when that
	// lets it make some.
	Cgroup string
	// Tracer makes the host's spans: of calls to plugins and of calls by them,
	// which are one trace. Nil makes none.
	Tracer trace.TracerProvider
	// Restart tells when a plugin that failed is started again.
	Restart RestartPolicy
	// StartTimeout bounds a start up to the plugin's Start. Default 15 s.
	StartTimeout time.Duration
	// StopGrace is how long a plugin may drain before it is killed. Default
	// 10 s.
	StopGrace time.Duration
	// HealthInterval and HealthTimeout are for the checks, of which three in a
	// row without an answer mean that the plugin hangs. Default 10 s and 5 s.
	HealthInterval, HealthTimeout time.Duration
}

// healthFailures is how many checks without an answer mean a hang.
const healthFailures = 3

func (c Config) withDefaults() Config {
	if c.RunDir == "" {
		c.RunDir = filepath.Join(c.Dir, ".run")
	}
	if c.Limits.Memory == 0 {
		c.Limits.Memory = 1 << 30
	}
	if c.Limits.Files == 0 {
		c.Limits.Files = 1024
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&c.StartTimeout, 15 * time.Second}, {&c.StopGrace, 10 * time.Second}, {&c.HealthInterval, 10 * time.Second}, {&c.HealthTimeout, 5 * time.Second}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.Tracer == nil {
		c.Tracer = noop.NewTracerProvider()
	}
	c.Restart = c.Restart.withDefaults()
	return c
}

func (c Config) validate() error {
	if c.Dir == "" {
		return errors.New("pluginhost: Config.Dir is required")
	}
	for name, d := range map[string]time.Duration{
		"StartTimeout": c.StartTimeout, "StopGrace": c.StopGrace, "HealthInterval": c.HealthInterval, "HealthTimeout": c.HealthTimeout,
	} {
		if d < time.Millisecond || d > time.Hour {
			return fmt.Errorf("pluginhost: Config.%s is %s, must be 1ms to 1h", name, d)
		}
	}
	// <run dir>/<pid>-<10 digits>/plugin-dir<10 digits>/plugin<10 digits>
	if room := len("/4194304-1234567890/plugin-dir1234567890/plugin1234567890"); len(c.RunDir)+room > maxSocket {
		return fmt.Errorf("pluginhost: Config.RunDir %s is longer than %d bytes, which the paths of sockets do not allow", c.RunDir, maxSocket-room)
	}
	return c.Restart.validate()
}

// passedOn are the variables that plugins get, when they are set.
var passedOn = []string{
	"PATH", "TZ", "LANG", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
}

// environment is the environment of a plugin.
func (c Config) environment() []string {
	var env []string
	for _, name := range append(passedOn, c.Env...) {
		if value, set := os.LookupEnv(name); set {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// defaultProcesses bounds the tasks of a plugin that has a control group.
const defaultProcesses = 512

// cgroup finds the control group for plugins. By default none is needed.
func (c *Config) cgroup() (*process.Cgroup, error) {
	if c.Cgroup == "none" {
		return nil, nil
	}
	group, err := process.FindCgroup(c.Cgroup)
	if err != nil && c.Cgroup != "" {
		return nil, fmt.Errorf("pluginhost: Config.Cgroup: %w", err)
	}
	if err != nil {
		return nil, nil
	}
	if c.Limits.Processes == 0 {
		c.Limits.Processes = defaultProcesses
	}
	return group, nil
}

// sweep removes what hosts left in the run folder that died.
func (c Config) sweep() error {
	entries, err := os.ReadDir(c.RunDir)
	if errors.Is(err, fs.ErrNotExist) {
		return os.MkdirAll(c.RunDir, 0o700)
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		owner, _, _ := strings.Cut(e.Name(), "-")
		pid, err := strconv.Atoi(owner)
		if err != nil || !e.IsDir() || pid <= 0 {
			continue
		}
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			if err := os.RemoveAll(filepath.Join(c.RunDir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// find opens the bundles of the folder.
func (c Config) find() ([]*bundle.Bundle, error) {
	paths, err := filepath.Glob(filepath.Join(c.Dir, "*", bundle.ManifestFile))
	if err != nil {
		return nil, err
	}
	var all []*bundle.Bundle
	names := map[string]string{}
	for _, path := range paths {
		dir := filepath.Dir(path)
		if strings.HasPrefix(filepath.Base(dir), ".") {
			continue
		}
		b, err := bundle.Open(dir)
		if err != nil {
			return nil, err
		}
		if other, taken := names[b.Manifest.Name]; taken {
			return nil, fmt.Errorf("pluginhost: %s and %s both hold a plugin called %s", other, dir, b.Manifest.Name)
		}
		names[b.Manifest.Name] = dir
		all = append(all, b)
	}
	return all, nil
}
