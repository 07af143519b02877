// Package proc builds the host binary and runs it as a process of its own,
// which tests kill as a crash or an operator would.
package proc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Root is the repository's root folder.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// Build builds ./cmd/host into dir and returns the binary's path. tags are
// build tags.
func Build(ctx context.Context, dir string, tags ...string) (string, error) {
	bin := filepath.Join(dir, "host")
	args := []string{"build", "-o", bin}
	if len(tags) > 0 {
		args = append(args, "-tags", strings.Join(tags, ","))
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/host")...)
	cmd.Dir = Root()
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the host: %w\n%s", err, out)
	}
	return bin, nil
}

// BuildBroken is Build for a host with a defect that tests must find, which the
// host has with the environment that is returned; "" is none.
func BuildBroken(ctx context.Context, dir, defect string) (bin string, env []string, err error) {
	var tags []string
	if defect != "" {
		tags, env = []string{"faults"}, []string{"OBJECTHOST_FAULT=" + defect}
	}
	bin, err = Build(ctx, dir, tags...)
	return bin, env, err
}

// Host is a running host process.
type Host struct {
	// URL is where it listens. Key is the API key that it printed, "" when it
	// printed none.
	URL, Key string

	cmd    *exec.Cmd
	output *buffer
	exited chan struct{}
	err    error
}

// Start runs `host serve` with args and returns when it listens.
func Start(ctx context.Context, bin string, args []string, env ...string) (*Host, error) {
	return Options{Env: env}.Start(ctx, bin, args)
}

// Options say where a host runs.
type Options struct {
	// Env is added to the environment.
	Env []string
	// Prefix is a command that runs the host, in its own process.
	Prefix []string
	// Alone gives the process ids of its own, as if it ran on another machine. It
	// needs Linux and the right to do so.
	Alone bool
}

// Start is [Start] with options.
func (o Options) Start(ctx context.Context, bin string, args []string) (*Host, error) {
	h := &Host{output: new(buffer), exited: make(chan struct{})}
	line := slices.Concat(o.Prefix, []string{bin, "serve"}, args)
	h.cmd = exec.Command(line[0], line[1:]...)
	h.cmd.Env = append(os.Environ(), o.Env...)
	if o.Alone {
		setAlone(h.cmd)
	}
	h.cmd.Stderr = h.output
	stdout, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := h.cmd.Start(); err != nil {
		return nil, err
	}
	listening := make(chan struct{})
	var read sync.WaitGroup
	read.Add(1)
	go func() {
		defer read.Done()
		h.read(stdout, listening)
	}()
	go func() {
		read.Wait()
		h.err = h.cmd.Wait()
		close(h.exited)
	}()
	select {
	case <-listening:
		return h, nil
	case <-h.exited:
		return nil, fmt.Errorf("host ended before it listened: %w\n%s", h.err, h.output)
	case <-ctx.Done():
		h.Kill()
		return nil, fmt.Errorf("host did not listen in time: %w\n%s", ctx.Err(), h.output)
	}
}

// read takes the address and the key from the host's output.
func (h *Host) read(stdout io.Reader, listening chan struct{}) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		line := lines.Text()
		fmt.Fprintln(h.output, line)
		if _, key, ok := strings.Cut(line, "shown this once: "); ok {
			h.Key = strings.TrimSpace(key)
		}
		if _, url, ok := strings.Cut(line, "listens on "); ok {
			h.URL = strings.TrimSpace(url)
			close(listening)
		}
	}
}

// Kill ends the process at once, as a crash or the OOM killer does, and
// returns when it is gone.
func (h *Host) Kill() {
	_ = h.cmd.Process.Kill()
	<-h.exited
}

// PID is the id of the process.
func (h *Host) PID() int { return h.cmd.Process.Pid }

// Signal sends a signal.
func (h *Host) Signal(s syscall.Signal) error { return h.cmd.Process.Signal(s) }

// Stop asks the host to stop and waits for it.
func (h *Host) Stop(ctx context.Context) error {
	if err := h.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-h.exited:
		return h.err
	case <-ctx.Done():
		h.Kill()
		return fmt.Errorf("host did not stop in time: %w", ctx.Err())
	}
}

// Exited is closed when the process has ended; Err then tells how.
func (h *Host) Exited() <-chan struct{} { return h.exited }

// Err is the result of a process that has ended.
func (h *Host) Err() error {
	<-h.exited
	return h.err
}

// Output is what the host has printed so far.
func (h *Host) Output() string { return h.output.String() }

// WaitListening is the time that a start may take.
const WaitListening = 60 * time.Second

// maxOutput bounds what is kept of a host's output.
const maxOutput = 1 << 20

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.b.Len() > maxOutput {
		b.b.Next(maxOutput / 2) // of a host that runs long, the end says more
	}
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// FreeAddr finds a port of an IP address that a host keeps through its restarts.
func FreeAddr(ip string) (string, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}
