package sqlstore_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/services/messaging/sqlstore"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/lease"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// TestClaimsUnderALease: a claim takes rows of the partitions that are held,
// those of targets that are served anywhere, and nothing once the lease is gone;
// a row is not stored as claimed by a process without one.
func TestClaimsUnderALease(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := storagetest.Open(t, storagetest.Postgres(t), storage.Config{})
	if err := db.Migrate(ctx, lease.Migrations(), sqlstore.Migrations()); err != nil {
		t.Fatal(err)
	}
	s := sqlstore.New(db)
	target := driver.Target{Source: "test", Key: "a", State: driver.TargetActive}
	if err := s.PutTarget(ctx, &target, false); err != nil {
		t.Fatal(err)
	}
	row := func(partition int) *driver.Row {
		id := fmt.Sprintf("row-%d", partition)
		return &driver.Row{
			ID: id, Source: "test", TargetKey: "a", TargetID: target.ID, DedupKey: id, URL: "http://x.test/", Method: "POST", TimeoutMillis: 1000,
			Payload: []byte("{}"), Partition: partition, OrderSeq: int64(partition), OrderKey: int64(partition), Status: driver.Pending,
		}
	}
	var rows []*driver.Row
	for p := range 8 {
		rows = append(rows, row(p+1))
	}
	if _, err := s.Insert(ctx, rows, driver.Terms{Hold: time.Second}); err != nil {
		t.Fatal(err)
	}
	node := func(token string, until string) {
		t.Helper()
		if _, err := db.Write(ctx).ExecContext(ctx, `INSERT INTO sys_node (token, name, process, lease_until, started_at)
			VALUES ($1, $1, '', `+db.NowSQL()+until+`, 0)`, token); err != nil {
			t.Fatal(err)
		}
	}
	node("live", "+60000")
	node("over", "-1")
	claim := func(l driver.Lease, anywhere bool) (got []int) {
		t.Helper()
		claimed, err := s.Claim(ctx, driver.ClaimRequest{
			Node: "node", Token: "token", Hold: time.Second, Lease: l,
			Wants: []driver.Want{{TargetID: target.ID, First: 2, Retry: 1, Anywhere: anywhere}},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range claimed {
			got = append(got, r.Partition)
		}
		return got
	}
	for _, c := range []struct {
		name     string
		lease    driver.Lease
		anywhere bool
		want     string
	}{
		{"no such lease", driver.Lease{Token: "gone"}, false, "[]"},
		{"a lease that is over", driver.Lease{Token: "over"}, false, "[]"},
		{"a lease that is over, of some partitions", driver.Lease{Token: "over", Partitions: []int64{1, 2}}, true, "[]"},
		{"held partitions", driver.Lease{Token: "live", Partitions: []int64{3, 5, 200}}, false, "[3 5]"},
		{"no partitions", driver.Lease{Token: "live", Partitions: []int64{}}, false, "[]"},
		{"anywhere", driver.Lease{Token: "live", Partitions: []int64{}}, true, "[1 2]"},
		{"all partitions", driver.Lease{Token: "live"}, false, "[4 6]"},
		{"without leases", driver.Lease{}, false, "[7 8]"},
	} {
		if got := fmt.Sprint(claim(c.lease, c.anywhere)); got != c.want {
			t.Errorf("%s: claimed %s, want %s", c.name, got, c.want)
		}
	}
	for token, want := range map[string]bool{"live": true, "over": false, "gone": false} {
		r := row(len(token) * 10)
		r.ID, r.DedupKey, r.Status, r.ClaimToken, r.ClaimedBy, r.OrderKey = token, token, driver.InFlight, "t", "node", 0
		out, err := s.Insert(ctx, []*driver.Row{r}, driver.Terms{Hold: time.Second, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		if !out[0].New || out[0].Claimed != want {
			t.Errorf("%s: inserted %+v, want claimed %v", token, out[0], want)
		}
	}
}

// TestOutlookOfSomePartitions: rows that wait elsewhere are told apart.
func TestOutlookOfSomePartitions(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := storagetest.Open(t, storagetest.Postgres(t), storage.Config{})
	if err := db.Migrate(ctx, lease.Migrations(), sqlstore.Migrations()); err != nil {
		t.Fatal(err)
	}
	s := sqlstore.New(db)
	var ids []int64
	for i, key := range []string{"a", "b", "c"} {
		target := driver.Target{Source: "test", Key: key, State: driver.TargetActive}
		if err := s.PutTarget(ctx, &target, false); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, target.ID)
		if _, err := s.Insert(ctx, []*driver.Row{{
			ID: key, Source: "test", TargetKey: key, TargetID: target.ID, DedupKey: key, URL: "http://x.test/", Method: "POST", TimeoutMillis: 1000,
			Payload: []byte("{}"), Partition: i, OrderSeq: 1, Status: driver.Pending,
		}}, driver.Terms{Hold: time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	out, err := s.Outlook(ctx, driver.View{Partitions: []int64{0}, Anywhere: []int64{ids[2]}})
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := make(map[int64]bool)
	for _, due := range out.Due {
		elsewhere[due.TargetID] = due.Elsewhere
	}
	if len(elsewhere) != 3 || elsewhere[ids[0]] || !elsewhere[ids[1]] || elsewhere[ids[2]] {
		t.Errorf("due = %+v", out.Due)
	}
}

// TestClaimsWriteNoIndex: a claim changes rows within their page, so that it
// costs no index entry and leaves none behind.
func TestClaimsWriteNoIndex(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := storagetest.Open(t, storagetest.Postgres(t), storage.Config{})
	if err := db.Migrate(ctx, sqlstore.Migrations()); err != nil {
		t.Fatal(err)
	}
	s := sqlstore.New(db)
	target := driver.Target{Source: "test", Key: "a", State: driver.TargetActive}
	if err := s.PutTarget(ctx, &target, false); err != nil {
		t.Fatal(err)
	}
	var rows []*driver.Row
	for i := range 100 {
		id := fmt.Sprintf("row-%d", i)
		rows = append(rows, &driver.Row{
			ID: id, Source: "test", TargetKey: "a", TargetID: target.ID, DedupKey: id, URL: "http://x.test/", Method: "POST", TimeoutMillis: 1000,
			Payload: bytes.Repeat([]byte("x"), 1024), Partition: i, OrderSeq: int64(i), OrderKey: int64(i + 1), Status: driver.Pending,
		})
	}
	if _, err := s.Insert(ctx, rows, driver.Terms{Hold: time.Second}); err != nil {
		t.Fatal(err)
	}
	err := db.InTx(ctx, func(ctx context.Context) error {
		claimed, err := s.Claim(ctx, driver.ClaimRequest{Node: "node", Token: "token", Hold: time.Second, Wants: []driver.Want{{TargetID: target.ID, First: 100}}})
		if err != nil {
			return err
		}
		var within int
		err = db.Read(ctx).QueryRowContext(ctx, `SELECT pg_stat_get_xact_tuples_hot_updated('sys_http_delivery'::regclass)`).Scan(&within)
		if len(claimed) != 100 || within != 100 {
			t.Errorf("%d rows claimed, %d of them within their page; want 100 and 100", len(claimed), within)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A process that is cut off in the middle of a transaction keeps nothing that
// others need for longer than a lease: neither its row in sys_node, which its
// takeover deletes, nor deliveries.
func TestIdleTransactionsAreBounded(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Postgres(t), storage.Config{})
	if err := db.Migrate(t.Context(), lease.Migrations(), sqlstore.Migrations()); err != nil {
		t.Fatal(err)
	}
	s := sqlstore.New(db)
	target := driver.Target{Source: "test", Key: "a", State: driver.TargetActive}
	if err := s.PutTarget(t.Context(), &target, false); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Write(t.Context()).ExecContext(t.Context(), `INSERT INTO sys_node (token, name, process, lease_until, started_at)
		VALUES ('live', 'node', '', `+db.NowSQL()+` + 60000, 0)`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Insert(t.Context(), []*driver.Row{{
		ID: "row", Source: "test", TargetKey: "a", TargetID: target.ID, DedupKey: "row", URL: "http://x.test/", Method: "POST",
		TimeoutMillis: 1000, Payload: []byte("{}"), OrderSeq: 1, Status: driver.Pending,
	}}, driver.Terms{Hold: time.Second}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"claim", func(ctx context.Context) error {
			rows, err := s.Claim(ctx, driver.ClaimRequest{
				Node: "node", Token: "token", Hold: time.Second, Lease: driver.Lease{Token: "live"}, Wants: []driver.Want{{TargetID: target.ID, First: 1, Retry: 1}},
			})
			if len(rows) != 1 {
				t.Errorf("claimed %d rows, want 1", len(rows))
			}
			return err
		}},
		{"record", func(ctx context.Context) error {
			applied, err := s.Record(ctx, []driver.Outcome{{ID: "row", Token: "token", Status: driver.Pending, Attempts: 1}}, nil)
			if len(applied) != 1 || !applied[0] {
				t.Errorf("applied %v, want true", applied)
			}
			return err
		}},
		{"expire", func(ctx context.Context) error { _, _, err := s.Expire(ctx, true, 6, 10); return err }},
	} {
		var bound string
		err := db.InTx(t.Context(), func(ctx context.Context) error {
			if err := c.do(ctx); err != nil {
				return err
			}
			return db.Write(ctx).QueryRowContext(ctx, "SHOW idle_in_transaction_session_timeout").Scan(&bound)
		})
		if err != nil || bound != "5s" {
			t.Errorf("%s: the transaction may be idle for %s, want 5s (%v)", c.name, bound, err)
		}
	}
}
