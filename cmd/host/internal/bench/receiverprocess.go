package bench

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// receiverGrace is what the receiver gets to end by itself.
const receiverGrace = 5 * time.Second

// receiver is the receiver's process as the bench sees it. Its methods are
// called by one goroutine at a time.
type receiver struct {
	addresses
	secret []byte

	mu      sync.Mutex
	command *exec.Cmd
	in      io.WriteCloser
	answers *json.Decoder
}

// startReceiver runs command until ctx ends or close is called.
func startReceiver(ctx context.Context, command []string) (*receiver, error) {
	r := &receiver{secret: []byte(rand.Text()), command: exec.CommandContext(ctx, command[0], command[1:]...)}
	r.command.Stderr = os.Stderr
	in, err := r.command.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the receiver: %w", err)
	}
	out, err := r.command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the receiver: %w", err)
	}
	r.command.Cancel, r.command.WaitDelay = in.Close, receiverGrace
	r.in, r.answers = in, json.NewDecoder(bufio.NewReaderSize(out, 1<<16))
	if err := r.command.Start(); err != nil {
		return nil, fmt.Errorf("start the receiver: %w", err)
	}
	if err := r.ask(string(r.secret), &r.addresses); err != nil {
		return nil, errors.Join(fmt.Errorf("start the receiver: %w", err), r.close())
	}
	return r, nil
}

// ask sends one line and reads the answer to it.
func (r *receiver) ask(line string, answer any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := io.WriteString(r.in, line+"\n"); err != nil {
		return fmt.Errorf("ask the receiver: %w", err)
	}
	if err := r.answers.Decode(answer); err != nil {
		return fmt.Errorf("read the receiver's answer: %w", err)
	}
	return nil
}

func (r *receiver) reset() error {
	var done bool
	return r.ask(askReset, &done)
}

func (r *receiver) tally() (t tally, err error) {
	err = r.ask(askTally, &t)
	return t, err
}

// arrivals are the times of first arrival by delivery id, in ns since 1970.
func (r *receiver) arrivals() (at map[string]int64, err error) {
	err = r.ask(askArrivals, &at)
	return at, err
}

// awaitHanging returns once one more request hangs.
func (r *receiver) awaitHanging() error {
	var done bool
	return r.ask(askHanging, &done)
}

func (r *receiver) close() error {
	_ = r.in.Close() // ends the process
	err := r.command.Wait()
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("end the receiver: %w", err)
	}
	return nil
}
