package pluginhost_test

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"

	"github.com/objecthost/objecthost/pluginsdk"
)

// receiver is an HTTP server that passes on the bodies it gets.
func receiver(t testing.TB, bodies chan<- string) string {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		bodies <- string(body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// readLines passes on the lines of a stream.
func readLines(r io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(r); in.Scan(); {
			lines <- in.Text()
		}
	}()
	return lines
}

func kill(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func retryable(err error) bool {
	return pluginsdk.IsCode(err, pluginsdk.CodeUnavailable) && pluginsdk.Retryable(err)
}
