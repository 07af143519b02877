package messaging

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// BenchmarkSendParallel is one delivery of 1 KB with 64 in flight over kept
// connections. The receiver is a process of its own that answers without
// looking, so that cpu-ns/op is what sending costs this process.
func BenchmarkSendParallel(b *testing.B) {
	s := newSender(b)
	o := outgoing("http://" + bareReceiver(b) + "/in")
	o.Body = []byte(`{"text":"` + strings.Repeat("0", 1000) + `"}`)
	b.SetParallelism(32) // of GOMAXPROCS, 2 on the machines that are compared
	b.ReportAllocs()
	b.ResetTimer()
	before := usedCPU(b)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if a := s.Send(b.Context(), o); a.StatusCode != http.StatusOK {
				b.Errorf("attempt is %+v", a)
				return
			}
		}
	})
	b.ReportMetric(float64(usedCPU(b)-before)/float64(b.N), "cpu-ns/op")
}

// usedCPU is what this process has used of the processor, in nanoseconds.
func usedCPU(b *testing.B) int64 {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return used.Utime.Nano() + used.Stime.Nano()
}

// bareReceiver starts the test binary as a receiver and returns its address.
func bareReceiver(b *testing.B) string {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^TestBareReceiver$")
	cmd.Env = append(os.Environ(), "OBJECTHOST_BARE_RECEIVER=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(addr)
}

// TestBareReceiver is the process of bareReceiver; by itself it does nothing.
func TestBareReceiver(t *testing.T) {
	if os.Getenv("OBJECTHOST_BARE_RECEIVER") == "" {
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = os.Stdout.WriteString(listener.Addr().String() + "\n")
	for {
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		go answerAll(conn)
	}
}

// answerAll answers each request with 200, once its head and its body of one
// length throughout have come.
func answerAll(conn net.Conn) {
	defer conn.Close()
	buf, have, want := make([]byte, 64<<10), 0, 0
	for {
		n, err := conn.Read(buf[have:])
		if err != nil {
			return
		}
		have += n
		if want == 0 {
			req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(buf[:have])))
			if err != nil {
				continue
			}
			want = bytes.Index(buf[:have], []byte("\r\n\r\n")) + 4 + int(req.ContentLength)
		}
		if have < want {
			continue
		}
		have = 0
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nDate: Tue, 01 Dec 2026 00:00:00 GMT\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{\"ok\":true}"); err != nil {
			return
		}
	}
}
