package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin/runner"
)

// MaxLine is where a line of the log is cut.
const MaxLine = 64 << 10

// maxNoise bounds what is kept of what was printed before the handshake.
const maxNoise = 2 << 10

// Limits bound a process. Zero fields do not.
type Limits struct {
	// Memory bounds what the process itself may allocate, in bytes.
	Memory uint64
	// Files bounds its open files.
	Files uint64
	// CPU bounds its processor time.
	CPU time.Duration
	// Processes bounds its threads and those of all processes that it starts.
	// With a Cgroup that is what it means. Without one it is RLIMIT_NPROC, by
	// which the kernel counts all threads of the user, and which does not bind
	// root.
	Processes uint64
}

// Spec is what is started.
type Spec struct {
	// Name is the plugin's, for errors.
	Name string
	Path string
	Args []string
	Dir  string
	// Env is the whole environment.
	Env    []string
	Limits Limits
	// Cgroup, unless nil, gives the process a control group of its own, in
	// which all end that it started.
	Cgroup *Cgroup
	// Line gets each line of standard error, without its end; cut tells that
	// it was longer. It is called from one goroutine and must not keep line.
	Line func(line []byte, cut bool)
}

// Process is a process that was or will be started once. It implements
// runner.Runner.
type Process struct {
	spec Spec

	start  sync.Mutex // held while the process is started
	cmd    *exec.Cmd  // set once, under start
	killed bool       // Kill came first: nothing is started any more
	group  *group     // nil without a Cgroup

	stdin     *os.File // our end
	handshake *io.PipeReader
	shaken    *io.PipeWriter

	mu    sync.Mutex
	noise strings.Builder

	leftover error // of the control group

	done chan struct{} // closed when the process has ended and its output was read
	exit error
}

var _ runner.Runner = (*Process)(nil)

// New makes a process that has not been started.
func New(spec Spec) *Process {
	p := &Process{spec: spec, done: make(chan struct{})}
	p.handshake, p.shaken = io.Pipe()
	return p
}

// AddEnv adds variables before the start.
func (p *Process) AddEnv(env ...string) { p.spec.Env = append(p.spec.Env, env...) }

// Start starts the process.
func (p *Process) Start(context.Context) (err error) {
	var open []*os.File
	defer func() {
		if err != nil {
			for _, f := range open {
				_ = f.Close()
			}
			_ = p.shaken.CloseWithError(io.EOF)
		}
	}()
	pipe := func() (r, w *os.File) {
		if err != nil {
			return nil, nil
		}
		if r, w, err = os.Pipe(); err == nil {
			open = append(open, r, w)
		}
		return r, w
	}
	stdin, hold := pipe()
	stdout, stdoutW := pipe()
	stderr, stderrW := pipe()
	if err != nil {
		return err
	}
	if err := p.spawn(stdin, stdoutW, stderrW); err != nil {
		return fmt.Errorf("process: start plugin %s: %w", p.spec.Name, err)
	}
	for _, f := range []*os.File{stdin, stdoutW, stderrW} {
		_ = f.Close()
	}
	p.stdin = hold
	var read sync.WaitGroup
	read.Go(func() { p.readStdout(stdout) })
	read.Go(func() { p.readStderr(stderr) })
	go p.reap(&read, stdout, stderr)
	return nil
}

// spawn starts the command. Another thread that forks at the wrong moment holds
// the file that was just written open for writing, for as long as its exec
// takes; then the start is tried again.
func (p *Process) spawn(stdin, stdout, stderr *os.File) (err error) {
	p.start.Lock()
	defer p.start.Unlock()
	if p.killed {
		return errors.New("it was killed before it was started")
	}
	if p.spec.Cgroup != nil {
		if p.group, err = p.spec.Cgroup.group(p.spec.Limits.Processes); err != nil {
			return fmt.Errorf("control group: %w", err)
		}
		defer func() {
			if err != nil {
				p.group.kill()
				err = errors.Join(err, p.group.remove())
			}
		}()
	}
	for pause := time.Millisecond; pause < time.Second; pause *= 2 {
		cmd := exec.Command(p.spec.Path, p.spec.Args...)
		cmd.Dir, cmd.Env = p.spec.Dir, p.spec.Env
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
		cmd.SysProcAttr = attributes()
		if err = onSpawner(func() error { return startBounded(cmd, p.spec.Limits, p.group) }); err == nil {
			p.cmd = cmd
			return nil
		}
		if !errors.Is(err, syscall.ETXTBSY) {
			return err
		}
		timer := time.NewTimer(pause)
		<-timer.C
	}
	return err
}

// reap waits for the process, ends what it left behind and then its output.
func (p *Process) reap(read *sync.WaitGroup, stdout, stderr *os.File) {
	p.exit = p.cmd.Wait()
	p.signal(syscall.SIGKILL)
	p.group.kill()
	p.leftover = p.group.remove()
	// A child that left the group may hold the pipes open.
	deadline := time.Now().Add(time.Second)
	_ = stdout.SetReadDeadline(deadline)
	_ = stderr.SetReadDeadline(deadline)
	read.Wait()
	for _, f := range []*os.File{stdout, stderr, p.stdin} {
		_ = f.Close()
	}
	close(p.done)
}

// signal signals the process group. The group is there until the leader was
// waited for, and then as long as it has members; an error means that nobody is
// left.
func (p *Process) signal(sig syscall.Signal) { _ = syscall.Kill(-p.cmd.Process.Pid, sig) }

// handshakeLine finds the handshake, also behind text without a line end.
var handshakeLine = regexp.MustCompile(`\d+\|\d+\|(unix|tcp)\|[^|]*(\|.*)?$`)

func (p *Process) readStdout(r io.Reader) {
	in := bufio.NewReaderSize(r, MaxLine)
	for {
		line, err := in.ReadSlice('\n')
		if found := handshakeLine.FindIndex(trimLine(line)); found != nil && err == nil {
			p.remember(line[:found[0]])
			if _, err := p.shaken.Write(line[found[0]:]); err == nil {
				_, _ = io.Copy(io.Discard, in)
			}
			break
		}
		p.remember(line)
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
	}
	_ = p.shaken.Close()
	_, _ = io.Copy(io.Discard, in)
}

// remember keeps the beginning of what was printed before the handshake.
func (p *Process) remember(text []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if room := maxNoise - p.noise.Len(); room > 0 {
		p.noise.Write(text[:min(room, len(text))])
	}
}

func (p *Process) readStderr(r io.Reader) {
	in := bufio.NewReaderSize(r, MaxLine)
	for {
		line, err := in.ReadSlice('\n')
		cut := errors.Is(err, bufio.ErrBufferFull)
		if len(line) > 0 {
			p.spec.Line(trimLine(line), cut)
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		if err != nil {
			return
		}
	}
}

func trimLine(line []byte) []byte {
	for len(line) > 0 && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
		line = line[:len(line)-1]
	}
	return line
}

// Noise is the beginning of what the plugin printed to standard output before
// the handshake.
func (p *Process) Noise() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.ToValidUTF8(p.noise.String(), "\uFFFD")
}

// Done is closed when the process has ended and its output was read.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitError tells how the process ended, nil for exit code 0. It is valid when
// Done is closed.
func (p *Process) ExitError() error { return p.exit }

// Leftover tells why the control group could not be removed, nil when it was.
// It is valid when Done is closed.
func (p *Process) Leftover() error { return p.leftover }

// PID is the process's id, 0 before Start.
func (p *Process) PID() int {
	if cmd := p.started(); cmd != nil {
		return cmd.Process.Pid
	}
	return 0
}

// started is the command, nil before the start.
func (p *Process) started() *exec.Cmd {
	p.start.Lock()
	defer p.start.Unlock()
	return p.cmd
}

// Terminate asks the process group to end.
func (p *Process) Terminate() {
	if p.started() == nil {
		return
	}
	select {
	case <-p.done:
	default:
		p.signal(syscall.SIGTERM)
	}
}

// Kill ends the process group and waits for the process, within ctx. It may be
// called in any state and more than once. A process that was not started yet
// will not be.
func (p *Process) Kill(ctx context.Context) error {
	p.start.Lock()
	p.killed = true
	never := p.cmd == nil
	p.start.Unlock()
	if never {
		return nil
	}
	select {
	case <-p.done: // the number may belong to another group by now
		return nil
	default:
	}
	p.signal(syscall.SIGKILL)
	return p.Wait(ctx)
}

// Wait waits for the end of the process, within ctx. How it ended is
// ExitError's affair.
func (p *Process) Wait(ctx context.Context) error {
	if p.started() == nil {
		return nil
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stdout carries the handshake only.
func (p *Process) Stdout() io.ReadCloser { return p.handshake }

// Stderr is empty: the lines go to Spec.Line.
func (p *Process) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name implements runner.Runner.
func (p *Process) Name() string { return p.spec.Name }

// ID implements runner.Runner.
func (p *Process) ID() string {
	if pid := p.PID(); pid != 0 {
		return strconv.Itoa(pid)
	}
	return ""
}

// Diagnose implements runner.Runner.
func (p *Process) Diagnose(context.Context) string {
	if noise := p.Noise(); noise != "" {
		return fmt.Sprintf("plugin %s printed to standard output before the handshake: %q", p.spec.Name, noise)
	}
	return ""
}

// PluginToHost implements runner.Runner.
func (p *Process) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

// HostToPlugin implements runner.Runner.
func (p *Process) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
