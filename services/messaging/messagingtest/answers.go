package messagingtest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Status answers with a code, a body and header lines ("Name: value").
func Status(code int, body string, headers ...string) Answer {
	return func(e *Exchange) {
		var b bytes.Buffer
		head(&b, code, headers...)
		if code >= 200 && code != http.StatusNoContent && code != http.StatusNotModified {
			fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
		}
		b.WriteString("\r\n")
		if e.Request.Method != http.MethodHead {
			b.WriteString(body)
		}
		e.send(b.Bytes())
	}
}

// head writes a status line and header lines, without the blank line.
func head(b *bytes.Buffer, code int, headers ...string) {
	text := http.StatusText(code)
	if text == "" {
		text = "Odd"
	}
	fmt.Fprintf(b, "HTTP/1.1 %d %s\r\n", code, text)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
}

// send writes and gives the connection up when that fails.
func (e *Exchange) send(p []byte) bool {
	if _, err := e.conn.Write(p); err != nil {
		e.keep = false
		return false
	}
	return true
}

// Redirect answers with a code and a Location.
func Redirect(code int, location string) Answer { return Status(code, "", "Location: "+location) }

// Raw sends bytes as they are and closes the connection.
func Raw(text string) Answer {
	return func(e *Exchange) {
		e.send([]byte(text))
		e.keep = false
	}
}

// Delay waits before another answer.
func Delay(d time.Duration, then Answer) Answer {
	return func(e *Exchange) {
		if e.Wait(d) {
			then(e)
		}
	}
}

// Hang says nothing until [Receiver.Release], then gives another answer.
func Hang(then Answer) Answer {
	return func(e *Exchange) {
		select {
		case <-e.Released:
			then(e)
		case <-e.Closing:
			e.keep = false
		}
	}
}

// HangUp closes the connection after another answer that claims keep-alive.
func HangUp(first Answer) Answer {
	return func(e *Exchange) {
		first(e)
		e.keep = false
	}
}

// CloseUnanswered closes the connection without a byte of an answer.
func CloseUnanswered() Answer { return func(e *Exchange) { e.keep = false } }

// ResetUnanswered resets the connection without a byte of an answer.
func ResetUnanswered() Answer {
	return func(e *Exchange) {
		e.keep = false
		reset(e.conn)
	}
}

// ResetAfter sends raw bytes and resets the connection.
func ResetAfter(text string) Answer {
	return func(e *Exchange) {
		e.keep = false
		e.send([]byte(text))
		reset(e.conn)
	}
}

// Drip sends the headers and then one body byte per interval, without end.
func Drip(code int, interval time.Duration) Answer {
	return func(e *Exchange) {
		e.keep = false
		var b bytes.Buffer
		head(&b, code, "Connection: close")
		b.WriteString("\r\n")
		for e.send(b.Bytes()) && e.Wait(interval) {
			b.Reset()
			b.WriteByte('.')
		}
	}
}

// DripHeaders sends the headers themselves one byte per interval, without end.
func DripHeaders(interval time.Duration) Answer {
	return func(e *Exchange) {
		e.keep = false
		next := []byte("HTTP/1.1 200 OK\r\nX-Slow: ")
		for e.send(next[:1]) && e.Wait(interval) {
			if next = next[1:]; len(next) == 0 {
				next = []byte("a")
			}
		}
	}
}

// Endless sends a body at full speed until the peer goes away, and reports how
// many bytes of it were written.
func Endless(code int, written func(int64)) Answer {
	return func(e *Exchange) {
		e.keep = false
		var b bytes.Buffer
		head(&b, code)
		b.WriteString("\r\n")
		if !e.send(b.Bytes()) {
			return
		}
		chunk := bytes.Repeat([]byte("x"), 32<<10)
		total := int64(0)
		for {
			n, err := e.conn.Write(chunk)
			if total += int64(n); err != nil {
				break
			}
		}
		if written != nil {
			written(total)
		}
	}
}

// LyingLength announces a longer body than it sends. It then says nothing more
// or, with hangUp, closes the connection.
func LyingLength(code, announced int, body string, hangUp bool) Answer {
	return func(e *Exchange) {
		e.keep = false
		var b bytes.Buffer
		head(&b, code, "Content-Length: "+strconv.Itoa(announced))
		b.WriteString("\r\n" + body)
		if e.send(b.Bytes()) && !hangUp {
			_, _ = io.Copy(io.Discard, e.conn) // until the peer gives up
		}
	}
}

// GzipBomb sends size zero bytes, compressed.
func GzipBomb(code int, size int64) Answer {
	var z bytes.Buffer
	w, _ := gzip.NewWriterLevel(&z, gzip.BestCompression)
	_, _ = io.CopyN(w, zeros{}, size)
	w.Close()
	return Status(code, z.String(), "Content-Encoding: gzip")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// Interim sends n interim answers of a code before another answer.
func Interim(n, code int, then Answer, headers ...string) Answer {
	return func(e *Exchange) {
		var b bytes.Buffer
		for range n {
			head(&b, code, headers...)
			b.WriteString("\r\n")
		}
		if e.send(b.Bytes()) {
			then(e)
		}
	}
}

// SwitchProtocols answers 101 and keeps the connection open and silent until
// the peer closes it; closed is called then.
func SwitchProtocols(closed func()) Answer {
	return func(e *Exchange) {
		e.keep = false
		e.send([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: odd\r\n\r\n"))
		_, _ = io.Copy(io.Discard, e.conn)
		if closed != nil {
			closed()
		}
	}
}

// GiantHeader answers with one header of so many bytes.
func GiantHeader(code, size int) Answer {
	return Status(code, "", "X-Giant: "+strings.Repeat("g", size))
}

// Echo answers 200 with the request's headers as the body, as debugging
// endpoints do.
func Echo() Answer {
	return func(e *Exchange) {
		var b bytes.Buffer
		_ = e.Request.Header.Write(&b)
		Status(200, b.String())(e)
	}
}
