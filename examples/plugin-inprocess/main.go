// Plugin-inprocess is a small host with one plugin of its own, package desk.
// Without arguments it runs on a temporary SQLite database, opens and closes a
// ticket through the API, and ends. -db takes another DSN.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime"

	"github.com/objecthost/objecthost/examples/plugin-inprocess/desk"
)

func main() {
	name := flag.String("db", "sqlite::memory:", "database: sqlite:<path> or postgres://…")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, *name, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "plugin-inprocess:", err)
		os.Exit(1)
	}
}

// run starts the host and uses the plugin as a client of its API would.
func run(ctx context.Context, name string, out io.Writer) (err error) {
	h, err := openHost(ctx, name, desk.New())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close(context.WithoutCancel(ctx))) }()

	// The plugin writes the history after the fact, so look out for it.
	written := make(chan string, 16)
	cancel, err := h.events.Subscribe(realtime.Filter{Object: desk.HistoryObject}, func(_ context.Context, e *event.Event) {
		written <- string(e.After)
	})
	if err != nil {
		return err
	}
	defer cancel()

	made, err := h.call(ctx, http.MethodPost, "/api/v1/data/desk_ticket", `{"title":"The printer is on fire"}`)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "create a ticket:", made.Status, field(made.Body, "record", "state"))

	where := "/api/v1/data/desk_ticket/" + field(made.Body, "id")
	refused, err := h.call(ctx, http.MethodPatch, where, `{"state":"closed"}`)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "close it without a resolution:", refused.Status, field(refused.Body, "code"))

	closed, err := h.call(ctx, http.MethodPatch, where, `{"state":"closed","resolution":"Water"}`)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "close it with one:", closed.Status, field(closed.Body, "record", "state"))

	for range 2 {
		select {
		case line := <-written:
			fmt.Fprintln(out, "history:", field([]byte(line), "state"))
		case <-ctx.Done():
			return fmt.Errorf("wait for the history: %w", ctx.Err())
		}
	}
	summary, err := h.call(ctx, http.MethodGet, "/api/v1/desk/summary", "")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "summary:", summary.Status, strings.TrimSpace(string(summary.Body)))
	if want := `{"data":{"closed":1,"open":0},"success":true}`; strings.TrimSpace(string(summary.Body)) != want {
		return fmt.Errorf("the summary is not %s", want)
	}
	fmt.Fprintln(out, "OK plugin-inprocess: an object, a hook, an event handler and a route")
	return nil
}
