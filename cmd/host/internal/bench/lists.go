package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/objecthost/objecthost/storage"
)

const lists = "lists"

// ListFigures are the times of one list's requests in milliseconds, as the
// client sees them, on an otherwise idle host.
type ListFigures struct {
	Name string  `json:"name"`
	P50  float64 `json:"p50_ms"`
	P99  float64 `json:"p99_ms"`
	// Records is how many the list answered.
	Records int `json:"records"`
}

// Lists measures lists of sys_http_delivery over HTTP with Config.Rows rows in
// the table, of which almost all have succeeded. Each list is asked for
// Config.Samples times, one after the other; P50 and P99 are those of the
// slowest.
func Lists(ctx context.Context, cfg Config) (*Report, error) {
	return measure(ctx, cfg, []string{lists}, map[string]scenario{lists: measureLists})
}

func measureLists(ctx context.Context, b *box) (f Figures, err error) {
	if err := b.fillLists(ctx, b.cfg.Rows); err != nil {
		return f, err
	}
	h, err := b.startHost(ctx)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, h.stop(ctx)) }()
	client := &http.Client{}
	defer client.CloseIdleConnections()
	base := "http://" + h.server.Addr() + "/api/v1/data/sys_http_delivery?"
	middle, err := askList(ctx, client, h.key, base+listQuery(map[string]string{
		"sort": "-created_at", "top": "50", "cursor": "", "filter": fmt.Sprintf(`["created_at","<",%q]`, isoMillis(listTime(b.cfg.Rows/2))),
	}))
	if err != nil {
		return f, err
	}
	if middle.NextCursor == "" {
		return f, errors.New("the list in the middle of the table has no cursor")
	}
	f.Runs, f.Rows = 1, b.cfg.Rows
	for _, l := range listsOf(b.cfg.Rows, middle.NextCursor) {
		figures, err := b.timeList(ctx, client, h.key, base, l)
		if err != nil {
			return f, fmt.Errorf("list %s: %w", l.name, err)
		}
		b.progress("%s: p50 %.2f ms, p99 %.2f ms", l.name, figures.P50, figures.P99)
		f.Lists = append(f.Lists, figures)
		f.P50, f.P99 = max(f.P50, figures.P50), max(f.P99, figures.P99)
	}
	return f, nil
}

// timeList asks for a list again and again, once before it counts.
func (b *box) timeList(ctx context.Context, client *http.Client, key, base string, l list) (ListFigures, error) {
	out := ListFigures{Name: l.name}
	var took []time.Duration
	for i := range b.cfg.Samples + 1 {
		begin := time.Now()
		answer, err := askList(ctx, client, key, base+listQuery(l.query))
		if err != nil {
			return out, err
		}
		if i > 0 {
			took = append(took, time.Since(begin))
		}
		if out.Records = len(answer.Records); out.Records != l.records {
			return out, fmt.Errorf("%d records were answered, %d are due", out.Records, l.records)
		}
	}
	out.P50, out.P99 = round(millis(percentile(took, 50)), 2), round(millis(percentile(took, 99)), 2)
	return out, nil
}

type listAnswer struct {
	Records    []json.RawMessage `json:"records"`
	NextCursor string            `json:"nextCursor"`
}

func askList(ctx context.Context, client *http.Client, key, url string) (answer listAnswer, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return answer, err
	}
	req.Header.Set("X-API-Key", key)
	resp, err := client.Do(req)
	if err != nil {
		return answer, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer, err
	}
	if resp.StatusCode != http.StatusOK {
		return answer, fmt.Errorf("the host answered %d: %.300s", resp.StatusCode, text)
	}
	return answer, json.Unmarshal(text, &answer)
}

func listQuery(query map[string]string) string {
	values := url.Values{}
	for k, v := range query {
		values.Set(k, v)
	}
	return values.Encode()
}

// list is one that is measured, and how many records it has to answer.
type list struct {
	name    string
	query   map[string]string
	records int
}

// The rows that are not success: one in a thousand is dead, one in a thousand
// failed, and few of the newest wait.
const listPending = 25

// listsOf are the views of the object and what people ask for besides.
func listsOf(rows int, middle string) []list {
	page := func(records int, query map[string]string) list {
		query["top"] = "50"
		return list{query: query, records: max(min(records, 50), 0)}
	}
	newest := func(filter string) map[string]string {
		return map[string]string{"sort": "-created_at", "filter": filter}
	}
	var out []list
	add := func(name string, l list) {
		l.name = name
		out = append(out, l)
	}
	add("newest", page(rows, map[string]string{"sort": "-created_at"}))
	add("oldest", page(rows, map[string]string{"sort": "created_at"}))
	add("by id", page(rows, map[string]string{}))
	add("view failures", page(rows/500, newest(`["status","in",["failed","dead"]]`)))
	add("view pending", page(listPending, newest(`["status","in",["pending","in_flight"]]`)))
	add("succeeded", page(rows, newest(`["status","=","success"]`)))
	add("dead", page(rows/1000, newest(`["status","=","dead"]`)))
	add("in flight, none", page(0, newest(`["status","=","in_flight"]`)))
	add("of an hour", page(3_600_000, newest(fmt.Sprintf(`["created_at","between",[%q,%q]]`, isoMillis(listTime(rows/3)), isoMillis(listTime(rows/3)+3_600_000)))))
	add("page in the middle, by cursor", page(rows, map[string]string{"sort": "-created_at", "cursor": middle}))
	add("skip 10,000", page(rows-10_000, map[string]string{"sort": "-created_at", "skip": "10000"}))
	add("total alone", list{query: map[string]string{"top": "1"}, records: 1})
	return out
}

// listTime is when row n was made: a millisecond apart, and long ago.
func listTime(n int) int64 { return 1_700_000_000_000 + int64(n) }

func isoMillis(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// fillLists puts n deliveries of a thousand webhooks into the table. What is
// pending is due in a far future, so that nothing is sent.
func (b *box) fillLists(ctx context.Context, n int) error {
	text, series := "CAST(g.n AS TEXT)", "WITH RECURSIVE g(n) AS (SELECT CAST(? AS INTEGER) UNION ALL SELECT n + 1 FROM g WHERE n < ?)"
	id := "'00000000-0000-7000-8000-' || substr('000000000000' || CAST(g.n AS TEXT), -12)"
	if b.db.Dialect() == storage.Postgres {
		text, series = "g.n::text", "WITH g(n) AS (SELECT generate_series(?::bigint, ?::bigint))"
		id = "'00000000-0000-7000-8000-' || lpad(g.n::text, 12, '0')"
	}
	const farAway = "4102444800000"
	open := strconv.Itoa(n - listPending)
	status := "CASE WHEN g.n > " + open + " THEN 'pending' WHEN g.n % 1000 = 7 THEN 'dead' WHEN g.n % 1000 = 8 THEN 'failed' ELSE 'success' END"
	created := "1700000000000 + g.n"
	insert := `INSERT INTO sys_http_delivery (id, source, ref_id, target_key, target_id, dedup_key, label, url, method, timeout_ms, payload_json, partition_key,
		order_seq, status, attempts, next_retry_at, finished_at, ended_as, event_id, created_at, updated_at) ` + series + ` SELECT ` + id + `, 'webhook',
		'w' || (g.n / 100 % 1000), 'w' || (g.n / 100 % 1000), 0, ` + text + `, 'data.record.created',
		'http://127.0.0.1:9/hook', 'POST', 15000, '{}', g.n % 256, g.n, ` + status + `, 1,
		CASE WHEN g.n > ` + open + ` THEN ` + farAway + ` END,
		CASE WHEN g.n <= ` + open + ` THEN ` + created + ` END, NULLIF(` + status + `, 'pending'), 'e' || ` + text + `, ` + created + `, ` + created + ` FROM g`
	for at := 1; at <= n; at += fillChunk {
		last := min(at+fillChunk-1, n)
		if _, err := b.db.Write(ctx).ExecContext(ctx, b.db.sql(insert), at, last); err != nil {
			return fmt.Errorf("fill the table: %w", err)
		}
		b.progress("%d of %d rows are in the table", last, n)
	}
	return b.settle(ctx)
}
