// Package receiver is a receiver of deliveries in a process of its own, which
// tells the test that started it about each request and each answer.
package receiver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"
)

// Env makes a program that calls [Maybe] a receiver; it holds the [Config].
const Env = "OBJECTHOST_TEST_RECEIVER"

// Config says how to receive.
type Config struct {
	// Secret is what requests are signed with.
	Secret string
	// Addr is where to listen, a free port of the loopback address when empty.
	Addr string
	// Paths says how to answer requests by their path, "/name"; other paths are
	// answered 200 after 3 ms.
	Paths map[string]Answer
}

// Answer says how requests are answered.
type Answer struct {
	// Delay is the time to the answer.
	Delay time.Duration
	// FailEvery has about one delivery in so many answered 503 at its first
	// attempt; 0 none.
	FailEvery int
	// Holds makes requests of this path wait when [Receiver.Hold] asks for it.
	Holds bool
}

// Arrival is one request that the receiver got.
type Arrival struct {
	// Number counts the arrivals from 0.
	Number   int
	Delivery string
	Attempt  int
	// Path is the request's, Record, Action, Mark and Sequence are of its body;
	// Mark is the field "mark" of the record.
	Path, Record, Action, Mark string
	Sequence                   int64
	// Sum is a hash of the body, Verified tells that its signature is right.
	Sum      string
	Verified bool
	// Node is the number of the host that sent it, -1 when none of those that
	// [Receiver.Node] told of.
	Node int
	// At is when it came, Open the number of requests of its path that were open
	// then, itself included.
	At   time.Time
	Open int
	// Status is what was answered, 0 as long as nothing was; Gone tells that the
	// sender went before. Held tells that it waited for [Receiver.Release].
	Status     int
	Gone, Held bool
}

// line is what the receiver's process writes.
type line struct {
	Kind    string // arrived, answered, gone, held or done
	Arrival Arrival
}

// Receiver is the receiver's process as its starter sees it. It is safe for
// concurrent use.
type Receiver struct {
	// Addr is where it listens.
	Addr string

	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{} // a command was carried out

	mu       sync.Mutex
	arrivals []Arrival
	watch    chan struct{} // closed at the next change
	sending  sync.Mutex    // one command at a time
}

// Start runs this program again as a receiver, until Stop or the end of ctx.
func Start(ctx context.Context, cfg Config) (*Receiver, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	r := &Receiver{cmd: exec.CommandContext(ctx, self), done: make(chan struct{}, 1), watch: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), Env+"="+string(text))
	r.cmd.Stderr = os.Stderr
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() {
		return nil, fmt.Errorf("receiver printed no address: %w", r.cmd.Wait())
	}
	r.Addr = lines.Text()
	go r.read(lines)
	return r, nil
}

func (r *Receiver) read(lines *bufio.Scanner) {
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			continue
		}
		if l.Kind == "done" {
			r.done <- struct{}{}
			continue
		}
		r.mu.Lock()
		switch n := l.Arrival.Number; l.Kind {
		case "arrived":
			r.arrivals = append(r.arrivals, l.Arrival)
		case "answered":
			r.arrivals[n].Status = l.Arrival.Status
		case "gone":
			r.arrivals[n].Gone = true
		case "held":
			r.arrivals[n].Held = true
		}
		close(r.watch)
		r.watch = make(chan struct{})
		r.mu.Unlock()
	}
}

// All are the arrivals so far, in their order.
func (r *Receiver) All() []Arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.arrivals)
}

// From are the arrivals from number n on, and a channel that is closed at the
// next request or answer.
func (r *Receiver) From(n int) ([]Arrival, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.arrivals[min(n, len(r.arrivals)):]), r.watch
}

// Node tells which host calls from an IP address, or is the process "pid:N" of
// this machine.
func (r *Receiver) Node(number int, from string) error {
	return r.command(fmt.Sprintf("node %d %s", number, from))
}

// Hold leaves the requests unanswered that are open on paths with Holds, and
// holds back the answers to their repeats (the same delivery and attempt) until
// Release.
func (r *Receiver) Hold() error { return r.command("hold") }

// Release answers the repeats, and holds nothing any more.
func (r *Receiver) Release() error { return r.command("release") }

// command has the process carry out a command.
func (r *Receiver) command(text string) error {
	r.sending.Lock()
	defer r.sending.Unlock()
	if _, err := fmt.Fprintln(r.stdin, text); err != nil {
		return fmt.Errorf("command the receiver: %w", err)
	}
	select {
	case <-r.done:
		return nil
	case <-time.After(30 * time.Second):
		return fmt.Errorf("the receiver does not answer to %q", text)
	}
}

// Stop ends the process.
func (r *Receiver) Stop() {
	_ = r.stdin.Close()
	_ = r.cmd.Wait()
}
