package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// post is one request of the bare client, signed beforehand.
type post struct {
	url, id, signature string
	body               []byte
}

// baseline posts n bodies with one http.Client and inFlight requests at once,
// and returns the rate per second.
func (b *box) baseline(ctx context.Context, n int) (float64, error) {
	posts := make([]post, n)
	for i := range posts {
		body := makeBody(i)
		posts[i] = post{
			url: b.url(i % b.cfg.Webhooks), id: "bare-" + strconv.Itoa(i), body: body,
			signature: sign(b.receiver.secret, body),
		}
	}
	if err := b.receiver.reset(); err != nil {
		return 0, err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: inFlight}}
	defer client.CloseIdleConnections()
	start := time.Now()
	err := concurrently(ctx, inFlight, n, func(ctx context.Context, i int) error { return posts[i].send(ctx, client) })
	if err != nil {
		return 0, fmt.Errorf("bare client: %w", err)
	}
	elapsed := time.Since(start)
	got, err := b.receiver.tally()
	if err != nil {
		return 0, err
	}
	if got.Unique != n || got.Wrong != 0 {
		return 0, fmt.Errorf("bare client: %d of %d requests arrived, %d with a wrong signature", got.Unique, n, got.Wrong)
	}
	return float64(n) / elapsed.Seconds(), nil
}

func (p *post) send(ctx context.Context, client *http.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(p.body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Objectstack-Delivery", p.id)
	req.Header.Set("X-Objectstack-Event", label)
	req.Header.Set("X-Objectstack-Attempt", "1")
	req.Header.Set("X-Objectstack-Signature", p.signature)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the receiver answered %d", resp.StatusCode)
	}
	return err
}

// label is the event of the bench's own deliveries.
const label = "data.record.created"

// makeBody returns a JSON body of bodySize bytes that only i has.
func makeBody(i int) []byte {
	head := fmt.Sprintf(`{"object":"bench","recordId":"%d","text":"`, i)
	body := make([]byte, 0, bodySize)
	body = append(body, head...)
	for len(body) < bodySize-2 {
		body = append(body, 'x')
	}
	return append(body, '"', '}')
}
