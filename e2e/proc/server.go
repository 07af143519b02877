package proc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/dsn"
)

// PostgresServer is a server of a test's own, which it may restart.
type PostgresServer struct {
	// Port is where it listens, on all addresses of the machine, also after a
	// restart.
	Port string

	bin, data string
	cred      *syscall.Credential
	cmd       *exec.Cmd
	exited    chan struct{}
	log       *buffer
}

// StartPostgres makes a database cluster below dir and starts a server on it,
// from the installed binaries; as root on Debian it installs them. It trusts
// everybody who comes from this machine or from one of the networks.
func StartPostgres(ctx context.Context, dir string, networks ...string) (*PostgresServer, error) {
	s := &PostgresServer{data: filepath.Join(dir, "postgres", "data"), log: new(buffer)}
	var err error
	if s.bin, err = findPostgres(ctx); err != nil {
		return nil, err
	}
	if err := s.own(dir); err != nil {
		return nil, err
	}
	if out, err := s.command(ctx, "initdb", "-D", s.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	hba, err := os.OpenFile(filepath.Join(s.data, "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	for _, network := range networks {
		fmt.Fprintf(hba, "host all all %s trust\n", network)
	}
	if err := hba.Close(); err != nil {
		return nil, err
	}
	for range 5 {
		addr, err := FreeAddr("127.0.0.1")
		if err != nil {
			return nil, err
		}
		_, s.Port, _ = net.SplitHostPort(addr)
		if err = s.Start(ctx); err == nil {
			return s, nil
		} else if ctx.Err() != nil || !strings.Contains(s.log.String(), "could not bind") {
			return nil, err
		}
	}
	return nil, fmt.Errorf("PostgreSQL found no free port\n%s", s.log)
}

// own makes the folder of the data. The server refuses to run as root.
func (s *PostgresServer) own(dir string) error {
	parent := filepath.Dir(s.data)
	if err := os.Mkdir(parent, 0o700); err != nil || os.Getuid() != 0 {
		return err
	}
	owner, err := user.Lookup("postgres")
	if err != nil {
		if owner, err = user.Lookup("nobody"); err != nil {
			return err
		}
	}
	uid, _ := strconv.ParseUint(owner.Uid, 10, 32)
	gid, _ := strconv.ParseUint(owner.Gid, 10, 32)
	s.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	// The owner must get through the folders above.
	for at := dir; at != os.TempDir() && len(at) > 1; at = filepath.Dir(at) {
		if info, err := os.Stat(at); err != nil || info.Mode()&0o001 == 0 && os.Chmod(at, info.Mode()|0o011) != nil {
			return fmt.Errorf("open %s for %s: %w", at, owner.Username, err)
		}
	}
	return os.Chown(parent, int(uid), int(gid))
}

func (s *PostgresServer) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, program), args...)
	cmd.Dir = filepath.Dir(s.data)
	if s.cred != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred}
	}
	return cmd
}

// DSN leads to the server at one of its addresses.
func (s *PostgresServer) DSN(ip string) string {
	return "postgres://postgres@" + net.JoinHostPort(ip, s.Port) + "/postgres?sslmode=disable"
}

// Start runs the server, again after Stop, and returns when it answers. Nothing is synced to the
// disk, which only a crash of the machine would miss.
func (s *PostgresServer) Start(ctx context.Context) error {
	s.cmd = s.command(context.WithoutCancel(ctx), "postgres", "-D", s.data, "-p", s.Port, "-c", "listen_addresses=*",
		"-c", "unix_socket_directories=", "-c", "max_connections=300", "-c", "fsync=off", "-c", "full_page_writes=off")
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) { _ = cmd.Wait(); close(exited) }(s.cmd, s.exited)
	deadline := time.After(2 * time.Minute)
	for {
		if err := s.answers(ctx); err == nil {
			return nil
		}
		select {
		case <-s.exited:
			return fmt.Errorf("PostgreSQL ended: %s", s.log)
		case <-deadline:
			return errors.Join(fmt.Errorf("PostgreSQL does not answer: %s", s.log), s.Stop(syscall.SIGQUIT))
		case <-ctx.Done():
			return errors.Join(ctx.Err(), s.Stop(syscall.SIGQUIT))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *PostgresServer) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	db, err := dsn.Open(ctx, s.DSN("127.0.0.1"), storage.Config{MaxConns: 1})
	if err != nil {
		return err
	}
	defer db.Close()
	var one int
	return db.Read(ctx).QueryRowContext(ctx, "SELECT 1").Scan(&one)
}

// Stop ends the server: SIGINT ends its sessions and writes everything down,
// SIGQUIT is a crash.
func (s *PostgresServer) Stop(how syscall.Signal) error {
	if err := s.cmd.Process.Signal(how); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-s.exited
	return nil
}

// findPostgres returns the folder of the server's binaries.
func findPostgres(ctx context.Context) (string, error) {
	if bin, ok := lookPostgres(ctx); ok {
		return bin, nil
	}
	const hint = "this needs a PostgreSQL server: install postgresql"
	if _, err := exec.LookPath("apt-get"); err != nil || os.Getuid() != 0 {
		return "", errors.New(hint)
	}
	for _, args := range [][]string{{"update", "-qq"}, {"install", "-y", "-qq", "--no-install-recommends", "postgresql"}} {
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-o", "DPkg::Lock::Timeout=300"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s (apt-get %s: %w: %s)", hint, args[0], err, out)
		}
	}
	if bin, ok := lookPostgres(ctx); ok {
		return bin, nil
	}
	return "", errors.New(hint)
}

func lookPostgres(ctx context.Context) (string, bool) {
	var folders []string
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		folders = append(folders, strings.TrimSpace(string(out)))
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin"} {
		found, _ := filepath.Glob(pattern)
		slices.Reverse(found) // the newest first
		folders = append(folders, found...)
	}
	if program, err := exec.LookPath("initdb"); err == nil {
		folders = append(folders, filepath.Dir(program))
	}
	for _, folder := range folders {
		if _, err := os.Stat(filepath.Join(folder, "initdb")); err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(folder, "postgres")); err == nil {
			return folder, true
		}
	}
	return "", false
}
