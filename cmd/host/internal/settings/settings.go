// Package settings reads how a host is to run from its configuration file, the
// environment and the command line, in this order of growing weight.
//
// One name serves all three: the setting egress-allow is the key egress-allow
// of the file, the variable HOST_EGRESS_ALLOW, and the flag --egress-allow. There
// is one exception: in the file the key plugins holds the configuration of
// plugins by their ID; as a variable and a flag it names the folder of plugins.
package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/objecthost/objecthost/cmd/host/internal/document"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/realtime/natsfanout"
	"github.com/objecthost/objecthost/storage/dsn"
)

// DefaultFile is read when it exists and no other file is named.
const DefaultFile = "host.yaml"

// defaultKeyFile is where a host on PostgreSQL keeps its keyring.
const defaultKeyFile = "data/host.key"

// Settings are checked and complete.
type Settings struct {
	// DB is the DSN of the database.
	DB string
	// ListenDSN leads to the same PostgreSQL database without a pooler; "" uses
	// DB where no pooler answers.
	ListenDSN string
	// Fanout is what wakes other hosts: auto, none, postgres or nats.
	Fanout string
	// NATSURL are the NATS servers, "" for none; NATSName is the stream's name.
	NATSURL, NATSName string
	// Listen is the address of the HTTP server.
	Listen string
	// Objects, Webhooks and Flows are folders with definitions, "" for none.
	Objects, Webhooks, Flows string
	// Console is the folder of a web console, "" for none.
	Console string
	// PluginDir is the folder of plugins that run in processes of their own, ""
	// for none, and PluginRun where their processes have their sockets.
	PluginDir, PluginRun string
	// PluginCgroup is the folder of a control group for plugins, "none" for no
	// groups.
	PluginCgroup string
	// Traces is where traces go: none, stderr or otlp to TracesEndpoint.
	Traces, TracesEndpoint string
	// PluginsDev runs plugins that are not signed or not in the lock file.
	PluginsDev bool
	// EgressAllow lists the CIDR ranges and host names that outbound requests
	// may reach although they are refused by default.
	EgressAllow []string
	// HTTPSOnly refuses outbound requests that are not https.
	HTTPSOnly bool
	// PublicURL is the origin at which browsers reach the host, "" for the one
	// of their requests, and AllowedOrigins are those of other sites whose pages
	// may call the API with the visitor's credentials.
	PublicURL      string
	AllowedOrigins []string
	// OIDCIssuer is the OpenID Connect provider at which users sign in, "" for
	// none, OIDCClientID what it knows the host by, and OIDCName what people call
	// it. With OIDCCreateUsers everybody whom it knows becomes a member.
	OIDCIssuer, OIDCClientID, OIDCName string
	OIDCCreateUsers                    bool
	LogLevel                           slog.Level
	// LogFormat is text or json.
	LogFormat string
	// Grace is the time that running work gets at a stop.
	Grace time.Duration
	// KeyFile holds the keyring that seals secrets; "" means beside the SQLite
	// file.
	KeyFile string
	// How the outbox works: rows of one claim, time between looks at the
	// database for what other hosts wrote, requests in flight altogether, to
	// one target and to one host name. 0 means the outbox's default.
	BatchSize, MaxInFlight, MaxPerTarget, MaxPerHost int
	PollInterval                                     time.Duration
	// DeliveryRetention keeps finished deliveries, EventRetention events. 0
	// means the services' defaults.
	DeliveryRetention, EventRetention time.Duration
	// Plugins holds the configuration of plugins by their ID, and File the
	// document it came from; nil for none.
	Plugins map[string]json.RawMessage
	File    *document.Document
}

// Error is a setting that cannot be used. Its text is one line.
type Error struct {
	// Source is where it was said: a flag, a variable, or a file's line.
	Source  string
	Message string
}

func (e *Error) Error() string { return e.Source + ": " + e.Message }

// Setting describes one setting to command lines and documents.
type Setting struct {
	Name, Default, Usage string
	// Kind is text, list or switch.
	Kind Kind

	set func(*Settings, []string) error
}

// Kind is how a setting is written.
type Kind string

// The kinds. A list is repeated on the command line, separated by commas in
// the environment, and a sequence in the file.
const (
	Text   Kind = "text"
	List   Kind = "list"
	Switch Kind = "switch"
)

// All returns the settings in the order in which they are documented.
func All() []Setting {
	return []Setting{
		{Name: "db", Default: "sqlite:./data/host.db", Kind: Text, Usage: "database: sqlite:PATH or postgres://…",
			set: func(s *Settings, v []string) error { s.DB = v[0]; return CheckDSN(v[0]) }},
		{Name: "db-listen-dsn", Kind: Text, Usage: "the same PostgreSQL database without a pooler, for one connection that LISTENs (default: db, where no pooler answers)",
			set: func(s *Settings, v []string) error { s.ListenDSN = v[0]; return checkListenDSN(v[0]) }},
		{Name: "fanout", Default: "auto", Kind: Text, Usage: "what wakes the other hosts of one database: auto, none, postgres or nats",
			set: func(s *Settings, v []string) error {
				s.Fanout = v[0]
				return oneOf(v[0], "auto", "none", "postgres", "nats")
			}},
		{Name: "nats-url", Kind: Text, Usage: "NATS servers with JetStream, for fanout: nats://host:4222, separated by commas",
			set: func(s *Settings, v []string) error {
				s.NATSURL = v[0]
				return natsfanout.Config{URL: v[0]}.Check()
			}},
		{Name: "nats-name", Kind: Text, Usage: "name of the NATS stream that the hosts of this database share (default objecthost)",
			set: func(s *Settings, v []string) error {
				s.NATSName = v[0]
				return natsfanout.Config{URL: "nats://unused", Name: v[0]}.Check()
			}},
		{Name: "listen", Default: "127.0.0.1:8080", Kind: Text, Usage: "address of the HTTP server",
			set: func(s *Settings, v []string) error { s.Listen = v[0]; return checkAddress(v[0]) }},
		{Name: "objects", Kind: Text, Usage: "folder with object definitions (*.yaml)",
			set: func(s *Settings, v []string) error { s.Objects = v[0]; return checkFolder(v[0]) }},
		{Name: "webhooks", Kind: Text, Usage: "folder with webhook definitions (*.yaml)",
			set: func(s *Settings, v []string) error { s.Webhooks = v[0]; return checkFolder(v[0]) }},
		{Name: "console", Kind: Text, Usage: "folder of a web console (its index.html and assets), served under /_console/",
			set: func(s *Settings, v []string) error { s.Console = v[0]; return checkConsole(v[0]) }},
		{Name: "flows", Kind: Text, Usage: "folder with flow definitions (*.json, *.yaml)",
			set: func(s *Settings, v []string) error { s.Flows = v[0]; return checkFolder(v[0]) }},
		{Name: "plugins", Kind: Text, Usage: "folder of plugins that run in processes of their own; in the file the key plugins is their configuration",
			set: func(s *Settings, v []string) error { s.PluginDir = v[0]; return checkFolder(v[0]) }},
		{Name: "plugins-run", Kind: Text, Usage: "folder with a short path for the sockets of plugins (default .run in the folder of plugins)",
			set: func(s *Settings, v []string) error { s.PluginRun = v[0]; return nil }},
		{Name: "plugins-cgroup", Kind: Text, Usage: "folder of a control group in which plugins get groups of their own, or none (default the host's own group, where that is possible)",
			set: func(s *Settings, v []string) error { s.PluginCgroup = v[0]; return nil }},
		{Name: "plugins-dev", Default: "false", Kind: Switch, Usage: "run plugins that are not signed or not installed, and grant what they request",
			set: func(s *Settings, v []string) (err error) { s.PluginsDev, err = parseSwitch(v[0]); return err }},
		{Name: "egress-allow", Kind: List, Usage: "CIDR range or host name that webhooks may call although it is internal; repeatable",
			set: func(s *Settings, v []string) error { s.EgressAllow = v; return checkEgress(v) }},
		{Name: "https-only", Default: "false", Kind: Switch, Usage: "refuse webhook URLs that are not https",
			set: func(s *Settings, v []string) (err error) { s.HTTPSOnly, err = parseSwitch(v[0]); return err }},
		{Name: "public-url", Kind: Text, Usage: "origin at which browsers reach the host, such as https://host.example; with https cookies are for TLS only",
			set: func(s *Settings, v []string) error { s.PublicURL = v[0]; return checkOrigins(v) }},
		{Name: "allowed-origins", Kind: List, Usage: "origin of another site whose pages may call the API with the visitor's credentials; repeatable",
			set: func(s *Settings, v []string) error { s.AllowedOrigins = v; return checkOrigins(v) }},
		{Name: "oidc-issuer", Kind: Text, Usage: "URL of an OpenID Connect provider at which users sign in; its client secret is HOST_OIDC_CLIENT_SECRET",
			set: func(s *Settings, v []string) error { s.OIDCIssuer = v[0]; return checkIssuer(v[0]) }},
		{Name: "oidc-client-id", Kind: Text, Usage: "what the OpenID Connect provider knows the host by",
			set: func(s *Settings, v []string) error { s.OIDCClientID = v[0]; return nil }},
		{Name: "oidc-name", Kind: Text, Usage: "what people call the OpenID Connect provider (default oidc)",
			set: func(s *Settings, v []string) error { s.OIDCName = v[0]; return nil }},
		{Name: "oidc-create-users", Default: "false", Kind: Switch, Usage: "make a member of everybody whom the OpenID Connect provider knows",
			set: func(s *Settings, v []string) (err error) { s.OIDCCreateUsers, err = parseSwitch(v[0]); return err }},
		{Name: "traces", Default: "none", Kind: Text, Usage: "where traces of calls to and by plugins go: none, stderr or otlp",
			set: func(s *Settings, v []string) error {
				s.Traces = v[0]
				return oneOf(v[0], "none", "stderr", "otlp")
			}},
		{Name: "traces-endpoint", Kind: Text, Usage: "URL that traces are posted to by OTLP over HTTP (default that of OTEL_EXPORTER_OTLP_ENDPOINT, or http://localhost:4318/v1/traces)",
			set: func(s *Settings, v []string) error { s.TracesEndpoint = v[0]; return checkURL(v[0]) }},
		{Name: "log-level", Default: "info", Kind: Text, Usage: "debug, info, warn or error",
			set: func(s *Settings, v []string) (err error) { s.LogLevel, err = parseLevel(v[0]); return err }},
		{Name: "log-format", Default: "text", Kind: Text, Usage: "text or json",
			set: func(s *Settings, v []string) error {
				s.LogFormat = v[0]
				return oneOf(v[0], "text", "json")
			}},
		{Name: "grace", Default: "20s", Kind: Text, Usage: "time that running work gets at a stop",
			set: func(s *Settings, v []string) (err error) {
				s.Grace, err = parseTime(v[0], time.Second, 10*time.Minute)
				return err
			}},
		{Name: "batch-size", Kind: Text, Usage: "deliveries of one claim, 1 to 5000 (default 500)",
			set: func(s *Settings, v []string) (err error) { s.BatchSize, err = parseCount(v[0], 5000); return err }},
		{Name: "max-in-flight", Kind: Text, Usage: "requests in flight that are answered promptly, 1 to 4096 (default 64)",
			set: func(s *Settings, v []string) (err error) { s.MaxInFlight, err = parseCount(v[0], 4096); return err }},
		{Name: "max-per-target", Kind: Text, Usage: "requests in flight to one webhook, 1 to 64 (default 64)",
			set: func(s *Settings, v []string) (err error) { s.MaxPerTarget, err = parseCount(v[0], 64); return err }},
		{Name: "max-per-host", Kind: Text, Usage: "requests in flight to one host and port, 1 to 65536 (default 256)",
			set: func(s *Settings, v []string) (err error) { s.MaxPerHost, err = parseCount(v[0], 65536); return err }},
		{Name: "poll-interval", Kind: Text, Usage: "time between looks for work of other hosts, 100ms to 10m (default 5s)",
			set: func(s *Settings, v []string) (err error) {
				s.PollInterval, err = parseTime(v[0], 100*time.Millisecond, 10*time.Minute)
				return err
			}},
		{Name: "delivery-retention", Kind: Text, Usage: "how long finished deliveries are kept, not less than events (default 720h)",
			set: func(s *Settings, v []string) (err error) {
				s.DeliveryRetention, err = parseTime(v[0], time.Minute, longest)
				return err
			}},
		{Name: "event-retention", Kind: Text, Usage: "how long events are kept (default 168h)",
			set: func(s *Settings, v []string) (err error) {
				s.EventRetention, err = parseTime(v[0], time.Minute, longest)
				return err
			}},
		{Name: "key-file", Kind: Text, Usage: "keyring that seals secrets (default: beside the SQLite file; ./data/host.key for PostgreSQL)",
			set: func(s *Settings, v []string) error { s.KeyFile = v[0]; return nil }},
	}
}

// Env is the name of the setting's environment variable.
func (s Setting) Env() string {
	return "HOST_" + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

// CheckDSN returns what is wrong with a DSN, without quoting it.
func CheckDSN(text string) error {
	scheme, rest, _ := strings.Cut(text, ":")
	switch scheme {
	case "sqlite":
		if rest == "" {
			return errors.New("a SQLite DSN names a file: sqlite:PATH")
		}
		return nil
	case "postgres", "postgresql":
		_, err := url.Parse(text)
		var parse *url.Error
		if errors.As(err, &parse) { // whose own text holds the whole DSN, with the password
			return fmt.Errorf("not a DSN such as postgres://user@host/database: %w", parse.Err)
		}
		return err
	}
	if !schemeForm.MatchString(scheme) { // it may be a password as well
		scheme = "…"
	}
	return fmt.Errorf("a DSN starts with sqlite: or postgres://, not with %s", scheme)
}

func checkListenDSN(text string) error {
	if scheme, _, _ := strings.Cut(text, ":"); scheme != "postgres" && scheme != "postgresql" {
		return errors.New("must be a DSN that starts with postgres://")
	}
	return CheckDSN(text)
}

var schemeForm = regexp.MustCompile(`^[a-z][a-z0-9+.-]*$`)

func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("must be a URL such as http://localhost:4318/v1/traces")
	}
	return nil
}

func checkAddress(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q is not an address such as 127.0.0.1:8080", addr)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("the port of %q must be 0 to 65535", addr)
	} else if n == 0 && port != "0" {
		return fmt.Errorf("the port of %q must be written as 0", addr)
	}
	return nil
}

func checkFolder(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return fmt.Errorf("the folder %q cannot be read: %w", dir, unwrapPath(err))
	case !info.IsDir():
		return fmt.Errorf("%q is not a folder", dir)
	}
	return nil
}

// checkConsole looks for the page of a console.
func checkConsole(dir string) error {
	if dir == "" {
		return nil
	}
	if err := checkFolder(dir); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "index.html")); err != nil {
		return fmt.Errorf("the folder %s holds no index.html", dir)
	}
	return nil
}

// checkOrigins accepts what browsers send as Origin.
func checkOrigins(entries []string) error {
	for _, origin := range entries {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Scheme+"://"+u.Host != origin {
			return fmt.Errorf("%q is not an origin such as https://host.example", origin)
		}
	}
	return nil
}

func checkIssuer(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return fmt.Errorf("%q is not a URL such as https://id.example", text)
	}
	return nil
}

func checkEgress(entries []string) error {
	_, err := messaging.ParseEgressAllow(entries)
	return err
}

func parseSwitch(s string) (bool, error) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("must be true or false, not %q", s)
}

func parseLevel(s string) (slog.Level, error) {
	if err := oneOf(s, "debug", "info", "warn", "error"); err != nil {
		return 0, err
	}
	var level slog.Level
	return level, level.UnmarshalText([]byte(s))
}

// longest bounds retentions; ten years do not overflow anything.
const longest = 10 * 365 * 24 * time.Hour

func parseTime(s string, least, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as 20s or 720h", s)
	}
	if d < least || d > most {
		return 0, fmt.Errorf("must be %s to %s, not %s", short(least), short(most), s)
	}
	return d, nil
}

// short is a duration without the zeros that its String appends: 10m0s is 10m.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func parseCount(s string, most int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("must be a number from 1 to %d, not %q", most, s)
	}
	return n, nil
}

func oneOf(s string, allowed ...string) error {
	for _, a := range allowed {
		if s == a {
			return nil
		}
	}
	return fmt.Errorf("must be %s or %s, not %q", strings.Join(allowed[:len(allowed)-1], ", "), allowed[len(allowed)-1], s)
}

// SQLiteFile is the database's file; ok is false when it is not kept in one
// that lasts.
func (s Settings) SQLiteFile() (path string, ok bool) {
	path, ok = dsn.SQLitePath(s.DB)
	path, _, _ = strings.Cut(path, "?")
	return path, ok && path != ":memory:"
}
