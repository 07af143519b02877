package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// The scenarios of [API].
const (
	apiCreate = "create"
	apiRead   = "read"
)

// API measures the record API over HTTP: records are created one by one, and
// read by their ids, by as many clients as there are writers. P50 and P99 are
// the times of a request; the clients run in the host's process, so that no
// processor time is told. Unique counts the ids that were answered, rows the
// records in the table.
func API(ctx context.Context, cfg Config) (*Report, error) {
	return measure(ctx, cfg, []string{apiCreate, apiRead}, map[string]scenario{
		apiCreate: func(ctx context.Context, b *box) (Figures, error) { return api(ctx, b, apiCreate) },
		apiRead:   func(ctx context.Context, b *box) (Figures, error) { return api(ctx, b, apiRead) },
	})
}

func api(ctx context.Context, b *box, kind string) (f Figures, err error) {
	h, err := b.startHost(ctx)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, h.stop(ctx)) }()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: b.cfg.Writers}}
	defer client.CloseIdleConnections()
	var ids []string
	var runs []run
	for i := range b.cfg.Runs {
		baseline, err := b.baseline(ctx, b.cfg.Rows)
		if err != nil {
			return f, err
		}
		if kind == apiCreate || ids == nil {
			ids = make([]string, b.cfg.Rows)
		}
		r, err := b.apiOnce(ctx, h, client, kind, ids)
		if err != nil {
			return f, err
		}
		r.baseline = baseline
		b.progress("run %d: bare client %.0f/s, API %.0f/s", i+1, baseline, r.rate)
		runs = append(runs, r)
	}
	f = summarize(kind, runs)
	f.RequestsPerSecond, f.DeliveriesPerSecond, f.BodyBytes = f.DeliveriesPerSecond, 0, 0
	f.HostCPUSecondsPer1000, f.DatabaseCPUSecondsPer1000, f.CPUSecondsPer1000 = 0, 0, 0
	return f, nil
}

// apiOnce creates a record for every id, and reads them when that is the kind.
func (b *box) apiOnce(ctx context.Context, h *host, client *http.Client, kind string, ids []string) (r run, err error) {
	path := "http://" + h.server.Addr() + "/api/v1/data/" + recordObject
	took := make([]time.Duration, len(ids))
	create := func(ctx context.Context, i int) (err error) {
		begin := time.Now()
		ids[i], err = call(ctx, client, h.key, http.MethodPost, path, record(i))
		took[i] = time.Since(begin)
		return err
	}
	read := func(ctx context.Context, i int) error {
		begin := time.Now()
		id, err := call(ctx, client, h.key, http.MethodGet, path+"/"+ids[i], nil)
		took[i] = time.Since(begin)
		if err == nil && id != ids[i] {
			err = fmt.Errorf("record %s was asked for, %s was answered", ids[i], id)
		}
		return err
	}
	work := create
	if kind == apiRead {
		work = read
		if ids[0] == "" {
			if err := concurrently(ctx, b.cfg.Writers, len(ids), create); err != nil {
				return r, err
			}
		}
	}
	before, err := b.db.count(ctx, "SELECT count(*) FROM "+recordObject)
	if err != nil {
		return r, err
	}
	start, err := b.watch(ctx)
	if err != nil {
		return r, err
	}
	if err := concurrently(ctx, b.cfg.Writers, len(ids), work); err != nil {
		return r, err
	}
	r.rate = float64(len(ids)) / time.Since(start.at).Seconds()
	if err := b.profile.stop(); err != nil {
		return r, err
	}
	_, r.peak = memory()
	if r.rows, err = b.db.count(ctx, "SELECT count(*) FROM "+recordObject); err != nil {
		return r, err
	}
	if kind == apiCreate {
		r.rows -= before
	}
	different := map[string]bool{}
	for _, id := range ids {
		different[id] = true
	}
	r.unique, r.waits = len(different), took
	if r.rows != len(ids) || r.unique != len(ids) {
		return r, fmt.Errorf("%d records were due, %d are in the table under %d ids", len(ids), r.rows, r.unique)
	}
	return r, nil
}

// call makes one request of the record API and returns the id of the record
// that was answered.
func call(ctx context.Context, client *http.Client, key, method, url string, in any) (id string, err error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return "", err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return "", err
	}
	req.Header.Set("X-API-Key", key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	var answer struct {
		Record struct {
			ID string `json:"id"`
		} `json:"record"`
	}
	if resp.StatusCode/100 != 2 || json.Unmarshal(text, &answer) != nil || answer.Record.ID == "" {
		return "", fmt.Errorf("%s %s answered %d: %.200s", method, url, resp.StatusCode, text)
	}
	return answer.Record.ID, nil
}
