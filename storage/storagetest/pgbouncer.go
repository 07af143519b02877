package storagetest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// PgBouncer starts a PgBouncer in transaction mode in front of the schema of a
// DSN that [Postgres] returned, and returns the DSN that leads through it. All
// clients share sessions on the server, at most pool of them. It ends with the
// test. Where there is no PgBouncer, it is installed as root on Debian; else the
// test fails: nothing is skipped.
func PgBouncer(t testing.TB, dsn string, pool int) string {
	t.Helper()
	bin, err := findPgBouncer()
	if err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(dsn)
	if err != nil {
		t.Fatalf("not a URL: %v", err)
	}
	for range 5 {
		address, err := startPgBouncer(t, bin, server, pool)
		if errors.Is(err, errPortTaken) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		pooled := url.URL{Scheme: "postgres", User: server.User, Host: address, Path: server.Path, RawQuery: "sslmode=disable"}
		return pooled.String()
	}
	t.Fatal("PgBouncer found no free port in five tries")
	return ""
}

var errPortTaken = errors.New("the port was taken meanwhile")

func startPgBouncer(t testing.TB, bin string, server *url.URL, pool int) (address string, err error) {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address = free.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	if err := free.Close(); err != nil {
		return "", err
	}
	database := strings.TrimPrefix(server.Path, "/")
	// The schema is chosen when the pooler connects to the server: from its
	// clients it takes no such parameter, but may be told not to mind it.
	target := []string{
		"host=" + server.Hostname(), "port=" + cmp.Or(server.Port(), "5432"),
		"dbname=" + database, "user=" + server.User.Username(),
	}
	if password, ok := server.User.Password(); ok {
		target = append(target, "password="+password)
	}
	if schema := server.Query().Get("search_path"); schema != "" {
		target = append(target, "connect_query='SET search_path TO "+schema+"'")
	}
	config := fmt.Sprintf(`[databases]
%s = %s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = %d
max_client_conn = 500
ignore_startup_parameters = search_path
`, database, strings.Join(target, " "), port, pool)
	file := filepath.Join(t.TempDir(), "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return "", err
	}
	args := []string{file}
	if os.Getuid() == 0 { // which it refuses to be
		args = []string{"-u", "nobody", file}
	}
	var out lockedBuffer
	cmd := exec.Command(bin, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return "", err
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
	return address, awaitPgBouncer(address, exited, &out)
}

// awaitPgBouncer returns when the pooler takes connections.
func awaitPgBouncer(address string, exited <-chan struct{}, out *lockedBuffer) error {
	deadline := time.After(30 * time.Second)
	for {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-exited:
			if strings.Contains(out.String(), "Address already in use") {
				return errPortTaken
			}
			return fmt.Errorf("PgBouncer ended: %s", out.String())
		case <-deadline:
			return fmt.Errorf("PgBouncer doesn't listen: %s", out.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// findPgBouncer returns the path of the program, which Debian keeps out of the
// path of plain users, and installs it where it may.
var findPgBouncer = sync.OnceValues(func() (string, error) {
	if bin, ok := lookPgBouncer(); ok {
		return bin, nil
	}
	const hint = "these tests need PgBouncer: install pgbouncer"
	if _, err := exec.LookPath("apt-get"); err != nil || os.Getuid() != 0 {
		return "", errors.New(hint)
	}
	for _, args := range [][]string{{"update", "-qq"}, {"install", "-y", "-qq", "--no-install-recommends", "pgbouncer"}} {
		cmd := exec.Command("apt-get", append([]string{"-o", "DPkg::Lock::Timeout=300"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s (apt-get %s: %w: %s)", hint, args[0], err, out)
		}
	}
	if bin, ok := lookPgBouncer(); ok {
		return bin, nil
	}
	return "", errors.New(hint)
})

func lookPgBouncer() (string, bool) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer", "/usr/local/sbin/pgbouncer"} {
		if bin, err := exec.LookPath(name); err == nil {
			return bin, true
		}
	}
	return "", false
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
