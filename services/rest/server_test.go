package rest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func listen(t *testing.T, p *plain) string {
	t.Helper()
	for range 2 { // the second changes nothing
		if err := p.Listen(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	return p.Addr()
}

func TestListenUsedAddress(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr := taken.Addr().String()
	p := setupPlain(t, Config{Addr: addr})
	err = p.Listen(t.Context())
	var refused *ListenError
	if !errors.As(err, &refused) || refused.Addr != addr {
		t.Fatalf("Listen = %v, want *ListenError", err)
	}
	if want := "rest: cannot listen on " + addr + ": bind: address already in use"; err.Error() != want {
		t.Errorf("Listen = %q, want %q", err, want)
	}
	if got := p.Addr(); got != "" {
		t.Errorf("Addr = %q", got)
	}
}

// TestShutdownLetsRequestsFinish stops the server in the middle of a request.
func TestShutdownLetsRequestsFinish(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	p := setupPlain(t, Config{Addr: "127.0.0.1:0"}, testRoute("GET", "/slow", func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-release
		_, _ = io.WriteString(w, "done")
	}, anonymous))
	addr := listen(t, p)
	answer := make(chan string, 1)
	go func() {
		resp, err := http.Get("http://" + addr + "/slow")
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		answer <- fmt.Sprint(string(b), err)
	}()
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- p.Shutdown(context.Background()) }()
	for { // the listener closes first
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			break
		}
		_ = conn.Close()
	}
	select {
	case err := <-stopped:
		t.Fatalf("Shutdown ended with a request running: %v", err)
	default:
	}
	close(release)
	if got := <-answer; got != "done<nil>" {
		t.Errorf("answer %q", got)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown = %v", err)
	}
	if err := p.Shutdown(context.Background()); err != nil {
		t.Errorf("second Shutdown = %v", err)
	}
}

// TestOnShutdown: a request without an end of its own gets to know of the
// shutdown that waits for it.
func TestOnShutdown(t *testing.T) {
	t.Parallel()
	entered, ending := make(chan struct{}), make(chan struct{})
	p := setupPlain(t, Config{Addr: "127.0.0.1:0"}, testRoute("GET", "/endless", func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-ending
	}, anonymous))
	addr := listen(t, p)
	p.OnShutdown(func() { close(ending) })
	answered := make(chan error, 1)
	go func() {
		resp, err := http.Get("http://" + addr + "/endless")
		if err == nil {
			err = resp.Body.Close()
		}
		answered <- err
	}()
	<-entered
	if err := p.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("the request = %v", err)
	}
	late := make(chan struct{})
	p.OnShutdown(func() { close(late) })
	<-late
}

// TestListenAndShutdownRace starts and stops in any order, also at once.
func TestListenAndShutdownRace(t *testing.T) {
	t.Parallel()
	for range 50 {
		p := setupPlain(t, Config{Addr: "127.0.0.1:0"})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := p.Listen(t.Context()); err != nil && !errors.Is(err, ErrStopped) {
					t.Errorf("Listen = %v", err)
				}
			})
			wg.Go(func() {
				if err := p.Shutdown(t.Context()); err != nil {
					t.Errorf("Shutdown = %v", err)
				}
			})
		}
		wg.Wait()
		if got := p.Addr(); got != "" {
			t.Fatalf("Addr = %q after Shutdown", got)
		}
		if err := p.Listen(t.Context()); !errors.Is(err, ErrStopped) {
			t.Fatalf("Listen after Shutdown = %v, want ErrStopped", err)
		}
	}
}

// TestShutdownCutsOffAtDeadline stops with a request that never ends.
func TestShutdownCutsOffAtDeadline(t *testing.T) {
	t.Parallel()
	entered, ended := make(chan struct{}), make(chan struct{})
	p := setupPlain(t, Config{Addr: "127.0.0.1:0"}, testRoute("GET", "/hang", func(_ http.ResponseWriter, r *http.Request) {
		defer close(ended)
		close(entered)
		<-r.Context().Done()
	}, anonymous))
	addr := listen(t, p)
	go func() {
		if resp, err := http.Get("http://" + addr + "/hang"); err == nil {
			_ = resp.Body.Close()
		}
	}()
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown = %v, want the context's error", err)
	}
	<-ended
}

// TestSlowHeader is a client that sends its header byte by byte.
func TestSlowHeader(t *testing.T) {
	t.Parallel()
	p := setupPlain(t, Config{Addr: "127.0.0.1:0", HeaderTimeout: 100 * time.Millisecond})
	conn, err := net.Dial("tcp", listen(t, p))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /api/v1/health HTTP/1.1\r\nHost: x\r\nX-Slow: "); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.Contains(line, "408") {
		t.Errorf("answer %q", line)
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Error("the connection stays open")
	}
}

// TestSlowBody is a client that never ends its body.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	read := make(chan error, 1)
	p := setupPlain(t, Config{Addr: "127.0.0.1:0", ReadTimeout: 100 * time.Millisecond},
		testRoute("POST", "/x", func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			read <- err
		}, anonymous))
	conn, err := net.Dial("tcp", listen(t, p))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\nabc"); err != nil {
		t.Fatal(err)
	}
	var timeout net.Error
	if err := <-read; !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("reading the body = %v, want a timeout", err)
	}
}

// TestReadTimeoutEndsWithTheBody lets handlers work for longer than a client has
// to send its request.
func TestReadTimeoutEndsWithTheBody(t *testing.T) {
	t.Parallel()
	const timeout = 100 * time.Millisecond
	p := setupPlain(t, Config{Addr: "127.0.0.1:0", ReadTimeout: timeout}, testRoute("POST", "/x",
		func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err == nil {
				select {
				case <-r.Context().Done():
					err = r.Context().Err()
				case <-time.After(3 * timeout):
				}
			}
			_, _ = fmt.Fprint(w, string(body), err)
		}, anonymous))
	base := "http://" + listen(t, p)
	for _, body := range []string{"", "hello"} {
		if _, got := fetch(t, "POST", base+"/x", "", body); got != body+"<nil>" {
			t.Errorf("answer %q", got)
		}
	}
}

// TestTooLargeOverSocket sends more than the server reads.
func TestTooLargeOverSocket(t *testing.T) {
	t.Parallel()
	p := setupPlain(t, Config{Addr: "127.0.0.1:0", BodyLimit: 1 << 20}, testRoute("POST", "/x",
		func(w http.ResponseWriter, r *http.Request) {
			_, err := readObject(r)
			fail(w, r, flat, err)
		}, anonymous))
	conn, err := net.Dial("tcp", listen(t, p))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() { // the server may well hang up in the middle
		_, _ = io.WriteString(conn, "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n")
		_, _ = conn.Write(make([]byte, 1<<20+1))
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if string(body) != `{"code":"PAYLOAD_TOO_LARGE","error":"Request body is larger than 1048576 bytes."}` || resp.StatusCode != 413 || !resp.Close {
		t.Errorf("answer %d %s, close %v", resp.StatusCode, body, resp.Close)
	}
}

// TestSlowReader is a client that never reads a long answer.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	wrote := make(chan error, 1)
	p := setupPlain(t, Config{Addr: "127.0.0.1:0", WriteTimeout: 100 * time.Millisecond},
		testRoute("GET", "/x", func(w http.ResponseWriter, _ *http.Request) {
			_, err := w.Write(make([]byte, 64<<20))
			wrote <- err
		}, anonymous))
	conn, err := net.Dial("tcp", listen(t, p))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	var timeout net.Error
	if err := <-wrote; !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("writing = %v, want a timeout", err)
	}
}

// TestWriteTimeoutIsPerWrite uses one connection for answers that come late, by
// a handler that works for longer than the client has to take one write, and for
// a request after a pause, whose 100 Continue net/http writes itself.
func TestWriteTimeoutIsPerWrite(t *testing.T) {
	t.Parallel()
	const timeout = 50 * time.Millisecond
	outlast := func() { <-time.After(3 * timeout) }
	p := setupPlain(t, Config{Addr: "127.0.0.1:0", WriteTimeout: timeout}, testRoute("POST", "/{when}",
		func(w http.ResponseWriter, r *http.Request) {
			if r.PathValue("when") == "before" {
				outlast()
			}
			_, _ = io.Copy(w, r.Body)
			if r.PathValue("when") == "after" {
				outlast()
			}
		}, anonymous))
	conn, err := net.Dial("tcp", listen(t, p))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for _, when := range []string{"before", "after", "never"} {
		if _, err := io.WriteString(conn, "POST /"+when+" HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok"); err != nil {
			t.Fatal(err)
		}
		expectBody(t, in, when)
	}
	outlast()
	if _, err := io.WriteString(conn, "POST /never HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := in.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("answer %q, %v", line, err)
	}
	_, _ = in.ReadString('\n')
	_, _ = io.WriteString(conn, "ok")
	expectBody(t, in, "continued")
}

func expectBody(t *testing.T, in *bufio.Reader, what string) {
	t.Helper()
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "ok" {
		t.Fatalf("%s: body %q, %v", what, body, err)
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, ""},
		{Config{Environment: "sandbox", AllowedOrigins: []string{"http://localhost:3000"}}, ""},
		{Config{Environment: "prod"}, `rest: Environment is "prod", must be production, sandbox or development`},
		{Config{BodyLimit: 10}, "rest: BodyLimit is 10, must be between 1 KiB and 1 GiB"},
		{Config{ReadTimeout: -1}, "rest: ReadTimeout is -1ns, must be between 0 and 1h"},
		{Config{AllowedOrigins: []string{"*"}}, `rest: AllowedOrigins holds "*", must be scheme and host like https://app.example.com`},
		{Config{AllowedOrigins: []string{"https://a.example/"}}, `rest: AllowedOrigins holds "https://a.example/", must be scheme and host like https://app.example.com`},
		{Config{AllowedOrigins: []string{"null"}}, `rest: AllowedOrigins holds "null", must be scheme and host like https://app.example.com`},
		{Config{AllowedOrigins: []string{"a.example"}}, `rest: AllowedOrigins holds "a.example", must be scheme and host like https://app.example.com`},
	} {
		got := ""
		if err := test.cfg.withDefaults().validate(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%+v: %q, want %q", test.cfg, got, test.want)
		}
	}
}
