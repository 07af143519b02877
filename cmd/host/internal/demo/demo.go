// Package demo plays a short scene on a running host: records are written
// through its API, and a receiver of the demo's own checks what arrives.
package demo

import (
	"context"
	"crypto/rand"
	_ "embed" // for the sample object
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/objecthost/objecthost/cmd/host/internal/client"
)

// AccountYAML is the definition of the object that the scene writes.
//
//go:embed account.yaml
var AccountYAML []byte

// The names of the scene.
const (
	object   = "account"
	kept     = "Acme"
	unwanted = "Globex"
)

// arrival bounds the wait for one request. The longest regular one is the
// second attempt after 1.2 s.
const arrival = 15 * time.Second

// Host is what the scene needs to know of the host.
type Host struct {
	URL, Key string
	// Database is what it runs on, for the reader.
	Database string
}

// scene is one run.
type scene struct {
	client   *client.Client
	out      io.Writer
	receiver *endpoint
	webhook  string
	requests []request
}

// Run plays the scene, prints it to out, and returns a sentence about how it
// went. The host must know the object account and may call 127.0.0.1. The error
// says which expectation failed.
func Run(ctx context.Context, host Host, out io.Writer) (summary string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := client.New(host.URL, host.Key)
	if err != nil {
		return "", err
	}
	secret := rand.Text()
	r, err := open(ctx, secret)
	if err != nil {
		return "", err
	}
	s := &scene{client: c, out: out, receiver: r}
	s.print("host", "%s on %s", host.URL, host.Database)
	s.print("receiver", "%s answers 500 to the first try of an update, 400 to %s", r.url, unwanted)
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return s.makeWebhook(ctx, secret) },
		s.refusal, s.keptRecord, s.unwantedRecord, s.checkRequests, s.checkRecordOfDeliveries,
	} {
		if err := step(ctx); err != nil {
			return "", err
		}
	}
	first, second := s.requests[1], s.requests[2]
	return fmt.Sprintf("%d signed requests for 4 deliveries: 3 arrived, one of them by a retry after %.1f s, and 1 is dead after HTTP 400",
		len(s.requests), second.At.Sub(first.At).Seconds()), nil
}

func (s *scene) print(who, format string, args ...any) {
	fmt.Fprintf(s.out, "%-9s %s\n", who, fmt.Sprintf(format, args...))
}

func (s *scene) makeWebhook(ctx context.Context, secret string) error {
	record, err := s.client.Create(ctx, "sys_webhook", client.Record{
		"name": "demo", "object_name": object, "url": s.receiver.url,
		"triggers": []string{"create", "update", "delete"}, "signing_secret": secret,
	})
	if err != nil {
		return fmt.Errorf("create the webhook: %w", err)
	}
	id, ok := record["id"].(string)
	if !ok || id == "" {
		return fmt.Errorf("create the webhook: the answer holds no id: %v", record)
	}
	s.webhook = id
	if record["signing_secret"] == secret {
		return errors.New("create the webhook: the answer shows the secret")
	}
	s.print("webhook", "demo: %s create, update, delete -> receiver, signed", object)
	return nil
}

// refusal sees that a record that breaks the definition is refused.
func (s *scene) refusal(ctx context.Context) error {
	_, err := s.client.Create(ctx, object, client.Record{"industry": "technology"})
	var refused *client.Error
	switch {
	case err == nil:
		return errors.New("a record without its required name was accepted")
	case !errors.As(err, &refused) || refused.Status != http.StatusBadRequest || refused.Code != "VALIDATION_FAILED":
		return fmt.Errorf("a record without its required name should be refused as VALIDATION_FAILED: %w", err)
	}
	s.print("write", "account without a name refused: %s", refused.Message)
	return nil
}

func (s *scene) keptRecord(ctx context.Context) error {
	record, err := s.client.Create(ctx, object, client.Record{
		"name": kept, "industry": "technology", "annual_revenue": 1250000, "code": "ACME",
	})
	if err != nil {
		return fmt.Errorf("create %s: %w", kept, err)
	}
	id, _ := record["id"].(string)
	if record["active"] != true {
		return fmt.Errorf("create %s: the default of active was not set: %v", kept, record)
	}
	s.print("write", "created %s (%s)", kept, id)
	if err := s.await(ctx, id, "created", 1, http.StatusOK); err != nil {
		return err
	}
	if _, err := s.client.Update(ctx, object, id, client.Record{"annual_revenue": 1300000}); err != nil {
		return fmt.Errorf("update %s: %w", kept, err)
	}
	s.print("write", "updated %s", kept)
	if err := s.await(ctx, id, "updated", 1, http.StatusInternalServerError); err != nil {
		return err
	}
	if err := s.await(ctx, id, "updated", 2, http.StatusOK); err != nil {
		return err
	}
	if err := s.client.Delete(ctx, object, id); err != nil {
		return fmt.Errorf("delete %s: %w", kept, err)
	}
	s.print("write", "deleted %s", kept)
	return s.await(ctx, id, "deleted", 1, http.StatusOK)
}

func (s *scene) unwantedRecord(ctx context.Context) error {
	record, err := s.client.Create(ctx, object, client.Record{"name": unwanted, "industry": "retail"})
	if err != nil {
		return fmt.Errorf("create %s: %w", unwanted, err)
	}
	id, _ := record["id"].(string)
	s.print("write", "created %s (%s)", unwanted, id)
	return s.await(ctx, id, "created", 1, http.StatusBadRequest)
}

// await takes the next request, shows it, and checks that it is the one that
// must come now.
func (s *scene) await(ctx context.Context, record, action string, attempt, answer int) error {
	timer := time.NewTimer(arrival)
	defer timer.Stop()
	var got request
	select {
	case got = <-s.receiver.arrived:
	case <-timer.C:
		return fmt.Errorf("attempt %d of the delivery for %s %s did not arrive within %s", attempt, record, action, arrival)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	verdict := "signature verified"
	if !got.Verified {
		verdict = "SIGNATURE WRONG"
	}
	s.print("delivery", "%s attempt %d, %d bytes, %s -> %d", got.Event, got.Attempt, len(got.Body), verdict, got.Answer)
	s.requests = append(s.requests, got)
	switch {
	case !got.Verified:
		return errors.New("a delivery carries a signature that does not fit its body")
	case got.body.RecordID != record || got.body.Action != action || got.body.Object != object:
		return fmt.Errorf("a delivery for %s %s was due, but one for %s %s of %q arrived", record, action, got.body.RecordID, got.body.Action, got.body.Object)
	case got.Event != "data.record."+action:
		return fmt.Errorf("a delivery of %s is labelled %q", action, got.Event)
	case got.Attempt != attempt:
		return fmt.Errorf("attempt %d of the delivery for %s was due, but attempt %d arrived", attempt, action, got.Attempt)
	case got.Answer != answer:
		return fmt.Errorf("the receiver answered %d, not %d", got.Answer, answer)
	}
	return nil
}

// checkRequests compares the requests with each other.
func (s *scene) checkRequests(context.Context) error {
	first, second := s.requests[1], s.requests[2]
	if first.Delivery != second.Delivery || string(first.Body) != string(second.Body) {
		return errors.New("the retry does not repeat the first attempt's id and bytes")
	}
	if wait := second.At.Sub(first.At); wait < 800*time.Millisecond || wait > 5*time.Second {
		return fmt.Errorf("the retry came after %s instead of about a second", wait)
	}
	ids := map[string]bool{}
	for _, r := range s.requests {
		ids[r.Delivery] = true
	}
	if len(ids) != 4 || ids[""] {
		return fmt.Errorf("%d different delivery ids arrived instead of 4", len(ids))
	}
	return nil
}
