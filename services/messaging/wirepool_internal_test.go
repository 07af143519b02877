package messaging

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// idleConn puts a connection into the pool and returns its other end.
func idleConn(p *wirePool, addr string) net.Conn {
	client, server := net.Pipe()
	p.put(newWireConn(client, wireKey{"http", addr}))
	return server
}

// isOpen looks at the other end of a connection.
func isOpen(t *testing.T, server net.Conn) bool {
	t.Helper()
	if err := server.SetReadDeadline(aLongTimeAgo); err != nil {
		return false
	}
	_, err := server.Read(make([]byte, 1))
	return isTimeout(err)
}

func TestWirePoolClosesWhatIsIdleTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newWirePool(&guard{})
		early := idleConn(p, "a:80")
		time.Sleep(idleTimeout / 2)
		used, late := idleConn(p, "b:80"), idleConn(p, "a:80")
		time.Sleep(idleTimeout/2 - 1)
		c := p.take(wireKey{"http", "b:80"})
		if c == nil || !isOpen(t, early) {
			t.Fatal("closed before their time")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if isOpen(t, early) || !isOpen(t, late) || !isOpen(t, used) || p.count != 1 {
			t.Errorf("after 30 s: early %v, late %v, used %v, %d idle", isOpen(t, early), isOpen(t, late), isOpen(t, used), p.count)
		}
		p.put(c) // its time begins again
		time.Sleep(idleTimeout / 2)
		synctest.Wait()
		if isOpen(t, late) || !isOpen(t, used) || p.count != 1 {
			t.Errorf("after 45 s: late %v, used %v, %d idle", isOpen(t, late), isOpen(t, used), p.count)
		}
		time.Sleep(idleTimeout)
		synctest.Wait()
		if isOpen(t, used) || p.count != 0 || p.oldest != nil || p.newest != nil || len(p.idle) != 0 || p.armed {
			t.Errorf("in the end: used %v, pool %+v", isOpen(t, used), p)
		}
	})
}

func TestWirePoolHasLimits(t *testing.T) {
	t.Parallel()
	p := newWirePool(&guard{})
	var first []net.Conn
	for i := range maxIdlePerHost + 1 {
		server := idleConn(p, "a:80")
		if open := isOpen(t, server); open != (i < maxIdlePerHost) {
			t.Fatalf("connection %d of one destination is open %v", i, open)
		}
		first = append(first, server)
	}
	for i := p.count; i < maxIdle; i++ {
		idleConn(p, strconv.Itoa(i)+":80")
	}
	if !isOpen(t, first[0]) || p.count != maxIdle {
		t.Fatalf("%d connections are kept, want %d", p.count, maxIdle)
	}
	newest := idleConn(p, "new:80")
	if isOpen(t, first[0]) || !isOpen(t, first[1]) || !isOpen(t, newest) || p.count != maxIdle {
		t.Errorf("one too many: oldest %v, second %v, newest %v, %d kept", isOpen(t, first[0]), isOpen(t, first[1]), isOpen(t, newest), p.count)
	}
	p.close()
	if late := idleConn(p, "late:80"); isOpen(t, late) || isOpen(t, newest) || isOpen(t, first[1]) || p.count != 0 || len(p.idle) != 0 {
		t.Errorf("after the close %d are kept", p.count)
	}
}

// The connection that came back last is used first, and one of another
// destination never.
func TestWirePoolTakesTheLast(t *testing.T) {
	t.Parallel()
	p := newWirePool(&guard{})
	idleConn(p, "a:80")
	second := idleConn(p, "a:80")
	if p.take(wireKey{"https", "a:80"}) != nil || p.take(wireKey{"http", "a:81"}) != nil {
		t.Error("a connection of another destination is given")
	}
	p.take(wireKey{"http", "a:80"}).drop()
	if isOpen(t, second) || p.count != 1 {
		t.Errorf("the second is open %v, %d are kept", isOpen(t, second), p.count)
	}
	p.close()
}

// Connections that the receiver has closed are passed over, all of them.
func TestWirePoolPassesClosedConnectionsOver(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newSender(t)
	key := wireKey{"http", listener.Addr().String()}
	for range 5 {
		conn, err := net.Dial("tcp", key.addr)
		if err != nil {
			t.Fatal(err)
		}
		server, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		server.Close()
		if _, err := conn.Read(make([]byte, 1)); err != io.EOF { // the end has arrived
			t.Fatal(err)
		}
		s.pooled.put(newWireConn(conn, key))
	}
	asked := make(chan string, 1)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("Connection")
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	a := s.Send(t.Context(), outgoing("http://"+key.addr+"/"))
	want(t, a, 200, ClassNone, "")
	if connection := <-asked; a.Reused || s.pooled.count != 1 || connection != "" {
		t.Errorf("attempt is %+v, %d idle, Connection: %s", a, s.pooled.count, connection)
	}
}

func TestDestinationsAreBounded(t *testing.T) {
	t.Parallel()
	var d destinations
	for i := range 3 * maxDestinations {
		raw := "https://user:pass@host-" + strconv.Itoa(i) + ".test/a%2Fb?x=" + strconv.Itoa(i)
		for range 2 {
			dest, err := d.parse(raw)
			if err != nil || dest.addr != "host-"+strconv.Itoa(i)+".test:443" || dest.uri != "/a%2Fb?x="+strconv.Itoa(i) || dest.pass != "pass" || !dest.ascii {
				t.Fatalf("%s: %+v, %v", raw, dest, err)
			}
		}
		if len(d.known) > maxDestinations {
			t.Fatalf("%d URLs are remembered", len(d.known))
		}
	}
	if dest, err := d.parse("http://bücher.test/"); err != nil || dest.ascii {
		t.Errorf("%+v, %v", dest, err)
	}
	if _, err := d.parse("http://x.test/ "); err == nil || d.known["http://x.test/ "] != nil {
		t.Errorf("an unusable URL: %v", err)
	}
}
