package storage_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// Transactions, savepoints, hooks and migrations of many hosts work behind a
// pooler that gives each transaction another session.
func TestBehindAPooler(t *testing.T) {
	t.Parallel()
	name := storagetest.Pooled(t)
	const hosts, each = 4, 20
	set := set("CREATE TABLE n (k TEXT PRIMARY KEY, v BIGINT NOT NULL)", "DROP TABLE n")
	var wg sync.WaitGroup
	var mu sync.Mutex
	committed := 0
	refused := errors.New("refused")
	for host := range hosts {
		db := storagetest.Open(t, name, storage.Config{MaxConns: 4})
		wg.Go(func() {
			if err := db.Migrate(t.Context(), set); err != nil {
				t.Error(err)
				return
			}
			for i := range each {
				err := db.InTx(t.Context(), func(ctx context.Context) error {
					storage.AfterCommit(ctx, func(context.Context) { mu.Lock(); committed++; mu.Unlock() })
					if err := put(ctx, db, fmt.Sprintf("<%d-%d>", host, i)); err != nil {
						return err
					}
					err := db.InTx(ctx, func(ctx context.Context) error {
						if err := put(ctx, db, fmt.Sprintf("<lost-%d-%d>", host, i)); err != nil {
							return err
						}
						return refused
					})
					if !errors.Is(err, refused) {
						return err
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	db := storagetest.Open(t, name, storage.Config{})
	var all, lost int
	if err := db.Read(t.Context()).QueryRowContext(t.Context(), "SELECT count(*), count(*) FILTER (WHERE k LIKE '<lost%') FROM n").Scan(&all, &lost); err != nil {
		t.Fatal(err)
	}
	if all != hosts*each || lost != 0 || committed != hosts*each {
		t.Errorf("%d rows, %d of rolled back savepoints, %d hooks; want %d, 0, %d", all, lost, committed, hosts*each, hosts*each)
	}
}
