package bench

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"
)

// The receiver is told what to do by one word per line on its standard input
// and answers each with one line of JSON; it ends with its input, so that it
// never outlives the bench. It shares no code with the sender.
const (
	askReset    = "reset"    // forget everything
	askTally    = "tally"    // answer a tally
	askArrivals = "arrivals" // answer the time of each id's first arrival
	askHanging  = "hanging"  // answer once a request hangs
)

// addresses is the receiver's first line.
type addresses struct {
	// In takes deliveries; Hang is another server that never answers.
	In, Hang string
}

// tally is what arrived since the last reset.
type tally struct {
	// Requests counts all, Unique different ids with a right signature, Wrong
	// requests whose signature does not fit.
	Requests, Unique, Wrong int
	// Bytes is the size of all bodies.
	Bytes int64
}

// sink is the receiving server.
type sink struct {
	secret  []byte
	buffers sync.Pool

	mu       sync.Mutex
	tally    tally
	arrivals map[string]int64 // first arrival in ns since 1970, by delivery id

	hangs chan struct{} // holds one token per request that hangs
}

// ServeReceiver is the receiver's process: it serves on ports of its own until
// in ends. The first line of in is the secret.
func ServeReceiver(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := bufio.NewScanner(in)
	if !lines.Scan() {
		return fmt.Errorf("read the secret: %w", errOf(lines))
	}
	s := &sink{
		secret: []byte(lines.Text()), arrivals: map[string]int64{}, hangs: make(chan struct{}, 1<<16),
		buffers: sync.Pool{New: func() any { return new([64 << 10]byte) }},
	}
	var at addresses
	var err error
	if at.In, err = serve(ctx, http.HandlerFunc(s.receive)); err != nil {
		return err
	}
	if at.Hang, err = serve(ctx, http.HandlerFunc(s.hang)); err != nil {
		return err
	}
	answers := json.NewEncoder(out)
	if err := answers.Encode(at); err != nil {
		return fmt.Errorf("tell the addresses: %w", err)
	}
	for lines.Scan() {
		if err := answers.Encode(s.answer(lines.Text())); err != nil {
			return fmt.Errorf("answer %s: %w", lines.Text(), err)
		}
	}
	return lines.Err()
}

func errOf(lines *bufio.Scanner) error {
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

func serve(ctx context.Context, h http.Handler) (url string, err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("open the receiver's socket: %w", err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }() // ends with ErrServerClosed
	return "http://" + listener.Addr().String(), nil
}

func (s *sink) answer(ask string) any {
	if ask == askHanging {
		<-s.hangs
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch ask {
	case askReset:
		s.tally, s.arrivals = tally{}, map[string]int64{}
		for len(s.hangs) > 0 {
			<-s.hangs
		}
		return true
	case askTally:
		t := s.tally
		t.Unique = len(s.arrivals)
		return t
	case askArrivals:
		return maps.Clone(s.arrivals)
	}
	return nil
}

// receive verifies one request over its raw bytes and answers 200, or 401 when
// the signature does not fit.
func (s *sink) receive(w http.ResponseWriter, r *http.Request) {
	now := time.Now().UnixNano()
	buffer := s.buffers.Get().(*[64 << 10]byte)
	defer s.buffers.Put(buffer)
	n, err := io.ReadFull(r.Body, buffer[:])
	if err != io.EOF && err != io.ErrUnexpectedEOF {
		http.Error(w, "the body could not be read or is too long", http.StatusBadRequest)
		return
	}
	right := hmac.Equal([]byte(r.Header.Get("X-Objectstack-Signature")), []byte(sign(s.secret, buffer[:n])))
	id := r.Header.Get("X-Objectstack-Delivery")
	s.mu.Lock()
	s.tally.Requests++
	s.tally.Bytes += int64(n)
	if !right || id == "" {
		s.tally.Wrong++
	} else if _, seen := s.arrivals[id]; !seen {
		s.arrivals[id] = now
	}
	s.mu.Unlock()
	if !right {
		w.WriteHeader(http.StatusUnauthorized)
	}
}

// hang holds a request until its sender gives up.
func (s *sink) hang(_ http.ResponseWriter, r *http.Request) {
	// Reading the body lets the server notice that the sender has gone.
	_, _ = io.Copy(io.Discard, r.Body)
	select {
	case s.hangs <- struct{}{}:
	default:
	}
	<-r.Context().Done()
}

func sign(secret, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}
