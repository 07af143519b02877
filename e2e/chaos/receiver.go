package chaos

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/objecthost/objecthost/services/messaging"
)

// ReceiverEnv makes a program that calls [MaybeReceive] a receiver.
const ReceiverEnv = "OBJECTHOST_CHAOS_RECEIVER"

// Arrival is one request that the receiver got.
type Arrival struct {
	Delivery string `json:"delivery"`
	Attempt  int    `json:"attempt"`
	Record   string `json:"record"`
	Action   string `json:"action"`
	Sum      string `json:"sum"`
	Verified bool   `json:"verified"`
}

// MaybeReceive runs a receiver and exits when the environment asks for it.
// Programs that start receivers call it first in main or TestMain.
func MaybeReceive() {
	secret := os.Getenv(ReceiverEnv)
	if secret == "" {
		return
	}
	if err := receive([]byte(secret)); err != nil {
		fmt.Fprintln(os.Stderr, "receiver:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// receive answers 200 to every request after a few milliseconds and writes a
// line for each to stdout before it answers, until its standard input ends.
func receive(secret []byte) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	fmt.Println(ln.Addr())
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		var record struct{ RecordID, Action string }
		_ = json.Unmarshal(body, &record) // an unreadable body counts as altered
		attempt, _ := strconv.Atoi(r.Header.Get("X-Objectstack-Attempt"))
		sum := sha256.Sum256(body)
		mu.Lock()
		err = out.Encode(Arrival{
			Delivery: r.Header.Get("X-Objectstack-Delivery"), Attempt: attempt, Record: record.RecordID, Action: record.Action,
			Sum: hex.EncodeToString(sum[:8]), Verified: messaging.VerifySignature(secret, body, r.Header) == nil,
		})
		mu.Unlock()
		if err != nil {
			return
		}
		time.Sleep(3 * time.Millisecond) // the window in which a request is in flight
		w.WriteHeader(http.StatusOK)
	})}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()
	if err := server.Serve(ln); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// receiver is the receiver's process as the runner sees it.
type receiver struct {
	addr  string
	cmd   *exec.Cmd
	stdin io.Closer

	mu       sync.Mutex
	arrivals []Arrival
	changed  chan struct{}
}

// startReceiver runs this program again as a receiver.
func startReceiver(ctx context.Context, secret string) (*receiver, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r := &receiver{cmd: exec.CommandContext(ctx, self), changed: make(chan struct{}, 1)}
	r.cmd.Env = append(os.Environ(), ReceiverEnv+"="+secret)
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
		return nil, fmt.Errorf("receiver printed no address")
	}
	r.addr = lines.Text()
	go func() {
		for lines.Scan() {
			var a Arrival
			if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
				continue
			}
			r.mu.Lock()
			r.arrivals = append(r.arrivals, a)
			r.mu.Unlock()
			select {
			case r.changed <- struct{}{}:
			default:
			}
		}
	}()
	return r, nil
}

func (r *receiver) all() []Arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Arrival(nil), r.arrivals...)
}

func (r *receiver) stop() {
	_ = r.stdin.Close()
	_ = r.cmd.Wait()
}
