package receiver

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/objecthost/objecthost/services/messaging"
)

// Maybe runs a receiver and exits when the environment asks for it. Programs
// that start receivers call it first in main or TestMain.
func Maybe() {
	text := os.Getenv(Env)
	if text == "" {
		return
	}
	var cfg Config
	err := json.Unmarshal([]byte(text), &cfg)
	if err == nil {
		err = serve(cfg)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "receiver:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// try is one attempt of a delivery.
type try struct {
	delivery string
	attempt  int
}

// server is the receiver's process.
type server struct {
	cfg   Config
	addr  string
	nodes nodes

	mu     sync.Mutex
	out    *json.Encoder
	number int
	open   map[string]int // requests by path
	held   map[try]bool   // while holding
	calls  map[int]*held  // open requests of paths that hold
	free   chan struct{}  // closed by release
}

// held is an open request that may be held.
type held struct {
	arrival Arrival
	never   chan struct{} // closed when it is to stay unanswered
}

// serve writes a line for each request before it answers, until its standard
// input ends.
func serve(cfg Config) error {
	ln, err := net.Listen("tcp", cmp.Or(cfg.Addr, "127.0.0.1:0"))
	if err != nil {
		return err
	}
	s := &server{
		cfg: cfg, addr: ln.Addr().String(), out: json.NewEncoder(os.Stdout),
		open: make(map[string]int), calls: make(map[int]*held),
	}
	fmt.Println(s.addr)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: s, ConnContext: s.nodes.remember}
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			s.command(strings.Fields(lines.Text()))
		}
		_ = server.Close()
	}()
	if err := server.Serve(ln); err != http.ErrServerClosed {
		return err
	}
	return nil
}

func (s *server) command(words []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch words[0] {
	case "node":
		number, _ := strconv.Atoi(words[1])
		s.nodes.set(number, words[2])
	case "hold":
		s.held, s.free = make(map[try]bool), make(chan struct{})
		for _, c := range s.calls {
			s.held[try{c.arrival.Delivery, c.arrival.Attempt}] = true
			close(c.never)
			s.tell("held", c.arrival)
		}
		clear(s.calls)
	case "release":
		if s.held != nil {
			close(s.free)
			s.held = nil
		}
	}
	s.tell("done", Arrival{})
}

// tell writes a line. s.mu is held.
func (s *server) tell(kind string, a Arrival) { _ = s.out.Encode(line{Kind: kind, Arrival: a}) }

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	how, known := s.cfg.Paths[r.URL.Path]
	if !known {
		how = Answer{Delay: 3 * time.Millisecond} // the window in which a request is in flight
	}
	a := s.arrival(r, body)
	call, free := s.arrived(&a, how)
	if call != nil || free != nil {
		var never chan struct{}
		if call != nil {
			never = call.never
		}
		s.wait(r.Context(), how.Delay, never, free)
	} else {
		time.Sleep(how.Delay)
	}
	code := http.StatusOK
	if how.FailEvery > 0 && a.Attempt == 1 && number(a.Delivery)%uint32(how.FailEvery) == 0 {
		code = http.StatusServiceUnavailable
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[a.Path]--
	delete(s.calls, a.Number)
	if r.Context().Err() != nil {
		s.tell("gone", a)
		return
	}
	a.Status = code
	s.tell("answered", a)
	w.WriteHeader(code)
}

// wait waits for the answer's time: the delay when the request is not held,
// the release when it is a repeat of one that is, the sender's end when it is
// to stay unanswered.
func (s *server) wait(ctx context.Context, delay time.Duration, never, free <-chan struct{}) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	if free != nil {
		select {
		case <-free:
		case <-ctx.Done():
		}
		return
	}
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-never:
		<-ctx.Done()
	}
}

// arrived counts and tells of a request, and returns how it is held: by never
// of the call, or until free is closed.
func (s *server) arrived(a *Arrival, how Answer) (call *held, free chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.Number = s.number
	s.number++
	s.open[a.Path]++
	a.Open, a.At = s.open[a.Path], time.Now()
	switch {
	case !how.Holds:
	case s.held[try{a.Delivery, a.Attempt}]:
		a.Held, free = true, s.free
	default:
		call = &held{arrival: *a, never: make(chan struct{})}
		s.calls[a.Number] = call
	}
	s.tell("arrived", *a)
	return call, free
}

// arrival reads a request.
func (s *server) arrival(r *http.Request, body []byte) Arrival {
	var event struct {
		RecordID, Action string
		Sequence         int64
		After            struct{ Mark string }
	}
	_ = json.Unmarshal(body, &event) // an unreadable body counts as altered
	attempt, _ := strconv.Atoi(r.Header.Get("X-Objectstack-Attempt"))
	sum := sha256.Sum256(body)
	return Arrival{
		Delivery: r.Header.Get("X-Objectstack-Delivery"), Attempt: attempt, Path: r.URL.Path, Record: event.RecordID,
		Action: event.Action, Mark: event.After.Mark, Sequence: event.Sequence, Sum: hex.EncodeToString(sum[:8]),
		Verified: messaging.VerifySignature([]byte(s.cfg.Secret), body, r.Header) == nil, Node: s.nodes.of(r),
	}
}

// number spreads ids evenly.
func number(id string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return h.Sum32() / 7
}
