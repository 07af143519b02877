package settings_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/objecthost/objecthost/cmd/host/internal/settings"
)

// write puts a configuration file into a folder of its own.
func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "host.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestLoadOrder(t *testing.T) {
	t.Parallel()
	file := write(t, "listen: 127.0.0.1:1\ngrace: 5s\nlog-level: debug\negress-allow: [10.0.0.0/8, a.example]\nhttps-only: true\nmax-in-flight: 7\n"+
		"plugins:\n  com.example.x:\n    size: 12345678901234567890\n")
	got, err := settings.Load(settings.Input{
		File:    file,
		Environ: []string{"PATH=/bin", "HOST_LISTEN=127.0.0.1:2", "HOST_GRACE=6s", "HOST_POLL_INTERVAL=250ms", "HOST_DB=", "HOST_URL=http://x", "HOST_TEST_POSTGRES=y"},
		Flags:   map[string][]string{"listen": {"127.0.0.1:3"}, "db": {"sqlite:/tmp/x/app.db?a=b"}},
		OtherVars: []string{
			"HOST_URL",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.File == nil || got.File.Name != file {
		t.Errorf("file is %v", got.File)
	}
	if string(got.Plugins["com.example.x"]) != `{"size":12345678901234567890}` || len(got.Plugins) != 1 {
		t.Errorf("plugins are %s", got.Plugins)
	}
	got.File, got.Plugins = nil, nil
	want := settings.Settings{
		DB: "sqlite:/tmp/x/app.db?a=b", Listen: "127.0.0.1:3", EgressAllow: []string{"10.0.0.0/8", "a.example"}, HTTPSOnly: true, Fanout: "auto",
		LogLevel: slog.LevelDebug, LogFormat: "text", Traces: "none", Grace: 6 * time.Second, MaxInFlight: 7, PollInterval: 250 * time.Millisecond,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestLoadDefaults(t *testing.T) {
	t.Parallel()
	got, err := settings.Load(settings.Input{File: write(t, "")})
	if err != nil {
		t.Fatal(err)
	}
	want := settings.Settings{
		DB: "sqlite:./data/host.db", Listen: "127.0.0.1:8080", LogLevel: slog.LevelInfo, LogFormat: "text", Traces: "none", Fanout: "auto",
		Grace: 20 * time.Second,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestLoadRefusals(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, file string
		env        string
		flags      map[string][]string
		want       string // FILE stands for the file's name
	}{
		{"unknown key", "db: sqlite:x\nlissten: a\n", "", nil, "FILE:2: no such setting: lissten (did you mean listen?)"},
		{"far key", "whatever: a\n", "", nil, "FILE:1: no such setting: whatever"},
		{"broken yaml", "db: [\n", "", nil, "FILE:1: sequence end token ']' not found"},
		{"not a mapping", "- a\n", "", nil, "FILE:1: the file must hold a mapping of settings"},
		{"type", "db: [5]\n", "", nil, "FILE:1: db: must be a text or a number, not [5]"},
		{"null", "db:\n", "", nil, "FILE:1: db: must be a text or a number, not null"},
		{"number for a text", "db: 5\n", "", nil, "FILE:1: db: a DSN starts with sqlite: or postgres://, not with …"},
		{"count", "batch-size: 5001\n", "", nil, `FILE:1: batch-size: must be a number from 1 to 5000, not "5001"`},
		{"retention", "", "HOST_EVENT_RETENTION=30s", nil, "HOST_EVENT_RETENTION: must be 1m to 87600h, not 30s"},
		{"list type", "egress-allow: 10.0.0.0/8\n", "", nil, `FILE:1: egress-allow: must be a list of texts, not "10.0.0.0/8"`},
		{"plugins type", "plugins: 5\n", "", nil, "FILE:1: plugins must be a mapping from plugin IDs to their configuration"},
		{"value in file although a flag replaces it", "grace: soon\n", "", map[string][]string{"grace": {"5s"}}, `FILE:1: grace: "soon" is not a duration such as 20s or 720h`},
		{"unknown variable", "", "HOST_LISTN=x", nil, "HOST_LISTN: no such setting (did you mean HOST_LISTEN?)"},
		{"value of variable", "", "HOST_HTTPS_ONLY=yes", nil, `HOST_HTTPS_ONLY: must be true or false, not "yes"`},
		{"list in variable", "", "HOST_EGRESS_ALLOW=10.0.0.0/8,10.1.2.3/8", nil, `HOST_EGRESS_ALLOW: egress allow: entry "10.1.2.3/8": has bits set after its 8-bit prefix, want 10.0.0.0/8`},
		{"dsn", "", "", map[string][]string{"db": {"mysql://root:geheim@x"}}, "--db: a DSN starts with sqlite: or postgres://, not with mysql"},
		{"postgres dsn", "", "", map[string][]string{"db": {"postgres://u:geheim@h:port/db"}}, `--db: not a DSN such as postgres://user@host/database: invalid port ":port" after host`},
		{"sqlite dsn", "", "", map[string][]string{"db": {"sqlite:"}}, "--db: a SQLite DSN names a file: sqlite:PATH"},
		{"dsn without scheme", "", "", map[string][]string{"db": {"My Password"}}, "--db: a DSN starts with sqlite: or postgres://, not with …"},
		{"address", "", "", map[string][]string{"listen": {"8080"}}, `--listen: "8080" is not an address such as 127.0.0.1:8080`},
		{"port", "", "", map[string][]string{"listen": {":70000"}}, `--listen: the port of ":70000" must be 0 to 65535`},
		{"empty port", "", "", map[string][]string{"listen": {"127.0.0.1:"}}, `--listen: the port of "127.0.0.1:" must be 0 to 65535`},
		{"folder", "", "", map[string][]string{"objects": {"/nonexistent"}}, `--objects: the folder "/nonexistent" cannot be read: no such file or directory`},
		{"no console", "", "", map[string][]string{"console": {os.TempDir() + "/."}}, "--console: the folder " + os.TempDir() + "/. holds no index.html"},
		{"host name", "", "", map[string][]string{"egress-allow": {"ok.example", "http://x"}}, `--egress-allow: egress allow: entry "http://x": not a CIDR range`},
		{"level", "", "", map[string][]string{"log-level": {"loud"}}, `--log-level: must be debug, info, warn or error, not "loud"`},
		{"grace bounds", "", "", map[string][]string{"grace": {"11m"}}, "--grace: must be 1s to 10m, not 11m"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			file := write(t, tc.file)
			_, err := settings.Load(settings.Input{File: file, Environ: []string{tc.env}, Flags: tc.flags})
			if err == nil {
				t.Fatalf("accepted, want %q", tc.want)
			}
			if got := strings.ReplaceAll(err.Error(), file, "FILE"); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestNamedFileMustExist(t *testing.T) {
	t.Parallel()
	_, err := settings.Load(settings.Input{File: "/nonexistent/host.yaml"})
	if err == nil || err.Error() != "/nonexistent/host.yaml: no such file or directory" {
		t.Errorf("got %v", err)
	}
}
