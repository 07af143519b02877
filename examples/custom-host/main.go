// Custom-host is a host program of one's own: some of the services, and a
// plugin, package orders, that tells a warehouse of every order.
//
// Without arguments it runs on a temporary SQLite database, plays the
// warehouse itself, takes one order and ends. With -warehouse it serves until
// it is interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/objecthost/objecthost/services/auth"
)

func main() {
	cfg := settings{Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	flag.StringVar(&cfg.DB, "db", "sqlite::memory:", "database: sqlite:<path> or postgres://…")
	flag.StringVar(&cfg.Listen, "listen", "127.0.0.1:0", "address of the HTTP server")
	flag.StringVar(&cfg.Warehouse, "warehouse", "", "URL that orders are told to; without one the program tries itself out and ends")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	do := serve
	if cfg.Warehouse == "" {
		do = try
	}
	if err := do(ctx, cfg, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "custom-host:", err)
		os.Exit(1)
	}
}

// serve runs the host until ctx ends.
func serve(ctx context.Context, cfg settings, out io.Writer) error {
	cfg.FirstKey = func(_ context.Context, key auth.NewKey) { fmt.Fprintln(out, "API key:", key.Secret) }
	return with(ctx, cfg, func(h *host) error {
		fmt.Fprintln(out, "listening on http://"+h.server.Addr())
		<-ctx.Done()
		return nil
	})
}

// try takes one order and waits until the warehouse, which is a server of its
// own here, has been told.
func try(ctx context.Context, cfg settings, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	told := make(chan string, 1)
	warehouse, err := serveHTTP(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what is missing shows below
		told <- r.Header.Get("X-Objectstack-Event") + " " + string(body)
	})
	if err != nil {
		return err
	}
	defer warehouse.Close()
	cfg.Warehouse = "http://" + warehouse.Addr
	var key string
	cfg.FirstKey = func(_ context.Context, first auth.NewKey) { key = first.Secret }
	return with(ctx, cfg, func(h *host) error {
		made, err := post(ctx, "http://"+h.server.Addr()+"/api/v1/data/shop_order", key, `{"customer":"Acme","total":12.50}`)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "ordered:", made)
		select {
		case got := <-told:
			if !strings.HasPrefix(got, `order.created {"customer":"Acme","id":"`) || !strings.HasSuffix(got, `","total":12.5}`) {
				return fmt.Errorf("the warehouse was told %s", got)
			}
			fmt.Fprintln(out, "the warehouse was told:", got)
		case <-ctx.Done():
			return fmt.Errorf("wait for the warehouse to be told: %w", ctx.Err())
		}
		fmt.Fprintln(out, "OK custom-host: an order was taken and the warehouse was told")
		return nil
	})
}

// with starts a host, does the work and stops the host again.
func with(ctx context.Context, cfg settings, work func(*host) error) error {
	h, cleanup, err := newHost(ctx, cfg)
	if err != nil {
		return err
	}
	defer cleanup()
	if err := h.kernel.Start(ctx); err != nil {
		return err
	}
	err = work(h)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	return errors.Join(err, h.kernel.Stop(stopping))
}

// serveHTTP serves a handler on a free port of this machine, the server's
// Addr, until it is closed.
func serveHTTP(handler http.HandlerFunc) (*http.Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Addr: l.Addr().String(), Handler: handler}
	go func() { _ = server.Serve(l) }() // ends with Close
	return server, nil
}

// post sends JSON with an API key and returns the body of a 201 answer.
func post(ctx context.Context, url, key, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("X-API-Key", key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusCreated {
		err = fmt.Errorf("POST %s: %s %s", url, resp.Status, text)
	}
	return strings.TrimSpace(string(text)), err
}
