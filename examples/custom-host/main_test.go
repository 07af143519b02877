package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func TestTry(t *testing.T) {
	storagetest.EachDialectDSN(t, func(t *testing.T, name string) {
		var out strings.Builder
		if err := try(t.Context(), settings{DB: name, Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)}, &out); err != nil {
			t.Fatalf("%v after\n%s", err, out.String())
		}
		want := regexp.MustCompile(`^ordered: \{"object":"shop_order","id":"(\S{16})",.*"total":12\.5,.*\}
the warehouse was told: order\.created \{"customer":"Acme","id":"(\S{16})","total":12\.5\}
OK custom-host: an order was taken and the warehouse was told
$`)
		got := want.FindStringSubmatch(out.String())
		if got == nil || got[1] != got[2] {
			t.Fatalf("printed\n%s", out.String())
		}
		db := storagetest.Open(t, name, storage.Config{})
		var key string
		if err := db.Read(t.Context()).QueryRowContext(t.Context(), "SELECT dedup_key FROM sys_http_delivery").Scan(&key); err != nil || key != "created:"+got[1] {
			t.Errorf("delivery %q, %v", key, err)
		}
	})
}

// The host serves until its context ends, and ends without an error.
func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read, write := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- serve(ctx, settings{DB: storagetest.SQLite(t), Listen: "127.0.0.1:0", Warehouse: "http://127.0.0.1:1", Log: slog.New(slog.DiscardHandler)}, write)
		_ = write.Close()
	}()
	var key, url string
	lines := bufio.NewScanner(read)
	for url == "" && lines.Scan() {
		if _, found, ok := strings.Cut(lines.Text(), "API key: "); ok {
			key = found
		}
		if _, found, ok := strings.Cut(lines.Text(), "listening on "); ok {
			url = found
		}
	}
	if _, err := post(ctx, url+"/api/v1/data/shop_order", key, `{"customer":"Acme","total":1}`); err != nil {
		t.Error(err)
	}
	if _, err := post(ctx, url+"/api/v1/data/shop_order", key, `{"customer":"Acme","total":-1}`); err == nil {
		t.Error("a negative total was taken")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
