package messaging

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
)

// recordingTransport is the sender's own net/http transport over pipes; last
// gets each request as it was written.
func recordingTransport(s *Sender, last *[]byte) *http.Transport {
	t := s.transport()
	dial := func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			var raw bytes.Buffer
			br := bufio.NewReader(io.TeeReader(server, &raw))
			for {
				raw.Reset()
				req, err := http.ReadRequest(br)
				if err != nil {
					return
				}
				if _, err := io.Copy(io.Discard, req.Body); err != nil {
					return
				}
				*last = bytes.Clone(raw.Bytes()) // read by the test after the answer
				if _, err := io.WriteString(server, "HTTP/1.1 204 No Content\r\n\r\n"); err != nil {
					return
				}
			}
		}()
		return client, nil
	}
	t.DialContext, t.DialTLSContext = dial, dial
	return t
}

// generated is a random delivery that can be sent.
func generated(r *rand.Rand) *Outgoing {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	o := &Outgoing{
		ID: pick("0193-delivery", "id with spaces", ""), Method: pick("", "post", "PUT", "Patch", "delete", "GET", "head", "options"),
		Label: pick("data.record.created", "flow:a b", "", "Zoë"), Attempt: r.IntN(9),
		Secret: []byte(pick("", "s3cret-key")), PreviousSecret: []byte(pick("", "old-key")),
		SignatureScheme: SignatureScheme(pick("", "objectstack", "standard", "both")),
	}
	o.URL = pick("http", "https", "HTTP") + "://" + pick("", "", "user@", "user:p%40ss@", "u%2Fser:@") +
		pick("recv.test", "RECV.test", "recv.test.", "127.0.0.1", "[2001:db8::1]", "[::FFFF:10.0.0.1]", "a_b.test") +
		pick("", ":80", ":443", ":8080") + pick("", "/", "/in", "/a%2Fb/%20c/%c3%a9", "/a;b=c,d/@:!$&'()*+=~", "//x//y", "/./../z", "/%E4%BD%A0") +
		pick("", "?", "?a=1&b=2&a=3", "?q=a+b%20c&x=%2F", "?{json}=[1]", "?a=http://x/?y=z", "?;")
	if len(o.Secret) == 0 {
		o.PreviousSecret = nil
	}
	if n := r.IntN(4); n > 0 {
		o.Headers = map[string]string{}
		names := []string{"x-a", "X-B", "CONTENT-TYPE", "user-agent", "authorization", "x-ünused", "Cookie", "a", "zz-last", "X_Under", "accept", "!odd~"}
		for range n {
			if name := names[r.IntN(len(names))]; validateHeader(name, "") == nil {
				o.Headers[name] = pick("", " ", "v", "  padded\t", "a\tb", "Zoë 客户", "a, b; c=\"d\"", strings.Repeat("long ", 400))
			}
		}
	}
	if r.IntN(3) == 0 {
		o.Auth = &Authentication{Type: AuthBearer, Credentials: map[string]string{"token": "t0ken"}}
	}
	o.Body = bytes.Repeat([]byte("\x00b\r\n"), []int{0, 0, 1, 25, maxWireBody / 4}[r.IntN(5)])
	return o
}

// What goes out is byte for byte what net/http writes, for a request over a kept
// connection and for the last of one.
func TestWireRequestsAreThoseOfNetHTTP(t *testing.T) {
	t.Parallel()
	s := newSender(t)
	var raw []byte
	kept, once := recordingTransport(s, &raw), recordingTransport(s, &raw)
	once.DisableKeepAlives = true
	t.Cleanup(kept.CloseIdleConnections)
	r := rand.New(rand.NewPCG(1, 2))
	w := new(wireBuffer) // used again, as in earnest
	sent := 0
	for range 3000 {
		o := generated(r)
		req, _, err := s.request(o, &Attempt{})
		if err != nil {
			continue // a URL or a scheme that is refused
		}
		dest, err := s.destinations.parse(o.URL)
		if err != nil {
			t.Fatal(err)
		}
		for last, transport := range map[bool]*http.Transport{false: kept, true: once} {
			resp, err := transport.RoundTrip(withBody(req.WithContext(t.Context()), o.Body))
			if err != nil {
				t.Fatalf("%s %s: %v", o.Method, o.URL, err)
			}
			resp.Body.Close()
			w.write(&wireRequest{req: req, dest: dest, body: o.Body}, last)
			if !bytes.Equal(w.bytes, raw) {
				t.Fatalf("%s %s is written as\n%.2000q, net/http writes\n%.2000q", o.Method, o.URL, w.bytes, raw)
			}
			sent++
		}
	}
	if sent < 3000 {
		t.Errorf("only %d requests were compared", sent)
	}
}

func TestWireHeaderStaysOnItsLine(t *testing.T) {
	t.Parallel()
	if got := string(appendHeader(nil, "X-A", " v\r\nX-Injected: 1\n")); got != "X-A: v  X-Injected: 1\r\n" {
		t.Errorf("the header is written as %q", got)
	}
}
