package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/objecthost/objecthost/cmd/host/internal/client"
)

// row is what the host must have recorded about a delivery in the end.
type row struct {
	status   string
	attempts int
	code     int
	err      string
}

// checkRecordOfDeliveries compares the host's own account with what arrived.
// The outcome of the last answer is saved a moment after it was given, so it
// asks until nothing is under way.
func (s *scene) checkRecordOfDeliveries(ctx context.Context) error {
	want := map[string]row{
		s.requests[0].Delivery: {status: "success", attempts: 1, code: 200},
		s.requests[1].Delivery: {status: "success", attempts: 2, code: 200},
		s.requests[3].Delivery: {status: "success", attempts: 1, code: 200},
		s.requests[4].Delivery: {status: "dead", attempts: 1, code: 400, err: "HTTP 400"},
	}
	rows, err := s.finishedRows(ctx)
	if err != nil {
		return err
	}
	if len(rows) != len(want) {
		return fmt.Errorf("the host holds %d deliveries of the webhook instead of %d", len(rows), len(want))
	}
	for id, w := range want {
		if got, ok := rows[id]; !ok || got != w {
			return fmt.Errorf("the host recorded %+v for delivery %s instead of %+v", got, id, w)
		}
	}
	select {
	case r := <-s.receiver.arrived:
		return fmt.Errorf("one request too many arrived: %s attempt %d", r.Event, r.Attempt)
	default:
	}
	s.print("outcome", "the host recorded 3 deliveries as success and 1 as dead")
	return nil
}

func (s *scene) finishedRows(ctx context.Context) (map[string]row, error) {
	deadline := time.NewTimer(arrival)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		page, err := s.client.Find(ctx, "sys_http_delivery", client.Query{Where: client.Record{"ref_id": s.webhook}, Limit: 100})
		if err != nil {
			return nil, fmt.Errorf("read the deliveries: %w", err)
		}
		rows, open := map[string]row{}, 0
		for _, r := range page.Records {
			id, _ := r["id"].(string)
			one := rowOf(r)
			if one.status == "pending" || one.status == "in_flight" {
				open++
			}
			rows[id] = one
		}
		if open == 0 {
			return rows, nil
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return nil, fmt.Errorf("%d deliveries are still open after %s", open, arrival)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func rowOf(r client.Record) (out row) {
	out.status, _ = r["status"].(string)
	out.err, _ = r["error"].(string)
	out.attempts = number(r["attempts"])
	out.code = number(r["response_code"])
	return out
}

func number(v any) int {
	n, ok := v.(json.Number)
	if !ok {
		return -1
	}
	i, err := n.Int64()
	if err != nil {
		return -1
	}
	return int(i)
}
