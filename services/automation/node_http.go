package automation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/objecthost/objecthost/services/messaging"
)

// outboundTypes are the nodes that call other systems: at once and waiting for
// the answer, or through the outbox.
func (s *Service) outboundTypes() []NodeType {
	return []NodeType{
		{
			Type: "http", Name: "HTTP", Category: "io", Icon: "globe", NeedsOutbox: true, SupportsPause: true, Effect: EffectExternal, Run: s.http,
			Description: "Call an HTTP endpoint: inline with its answer, or durable through the outbox with retries.",
			ConfigSchema: json.RawMessage(`{"type":"object","required":["url"],"properties":{
				"url":{"type":"string"},"method":{"type":"string"},
				"headers":{"type":"object","additionalProperties":{"type":"string"}},
				"body":{"description":"Sent as JSON; a text is sent as it is"},
				"durable":{"type":"boolean","description":"Send through the outbox"},
				"timeoutMs":{"type":"number","exclusiveMinimum":0,"maximum":300000},
				"signingSecret":{"type":"string"},
				"waitForDelivery":{"type":"boolean","description":"With durable: go on when the delivery has ended"},
				"ordering":{"enum":["none","run"],"description":"With durable: run sends the deliveries of one run in their order"}}}`),
		},
		{
			Type: "notify", Name: "Notify", Category: "io", Icon: "bell", NeedsOutbox: true, Effect: EffectStore, Run: s.notify,
			Description: "Send a notification to a system that delivers it, through the outbox.",
			ConfigSchema: json.RawMessage(`{"type":"object","required":["url"],"properties":{
				"url":{"type":"string","description":"Where notifications are taken"},
				"headers":{"type":"object","additionalProperties":{"type":"string"}},"signingSecret":{"type":"string"},
				"recipients":{},"title":{"type":"string"},"message":{"type":"string"},"template":{"type":"string"},
				"templateData":{"type":"object"},"channels":{"type":"array","items":{"type":"string"}},"topic":{"type":"string"},
				"severity":{"type":"string"},"sourceObject":{"type":"string"},"sourceId":{"type":"string"},"actorId":{"type":"string"},
				"actionUrl":{"type":"string"},"payload":{"type":"object"}}}`),
		},
	}
}

// httpEffect tells how a call is saved: a durable one with its row, a reading
// one not at all.
func httpEffect(config map[string]any) Effect {
	if durable, _ := config["durable"].(bool); durable {
		return EffectStore
	}
	if reads(method(config, "GET")) {
		return EffectNone
	}
	return EffectExternal
}

func method(config map[string]any, fallback string) string {
	return strings.ToUpper(text(config, "method", fallback))
}

func reads(method string) bool { return slices.Contains([]string{"GET", "HEAD", "OPTIONS"}, method) }

func (s *Service) http(ctx context.Context, step *Step) (Result, error) {
	durable, _ := step.Config["durable"].(bool)
	if !durable {
		for _, key := range []string{"waitForDelivery", "ordering"} {
			if given, ok := step.Config[key]; ok && given != false {
				return Result{}, &GuardError{"http: " + key + " needs durable"}
			}
		}
		return s.inline(ctx, step)
	}
	return s.durable(ctx, step)
}

// inline sends the request through the outbox's own sender, so that the same
// guard and caps hold, and waits for the answer.
func (s *Service) inline(ctx context.Context, step *Step) (Result, error) {
	out := &messaging.Outgoing{
		ID: step.Key(), URL: text(step.Config, "url", ""), Method: method(step.Config, "GET"), Label: "flow:" + step.NodeID,
		Headers: headers(step.Config), Attempt: step.Retry + 1,
	}
	if body, ok := step.Config["body"]; ok {
		var err error
		if out.Body, err = payload(body); err != nil {
			return Result{}, err
		}
	}
	if secret := text(step.Config, "signingSecret", ""); secret != "" {
		out.Secret = []byte(secret)
	}
	out.Timeout = timeout(step.Config)
	writes := !reads(out.Method)
	attempt := s.outbox.Sender().Send(ctx, out)
	r := Result{Acted: count(0)}
	if writes {
		r.Acted, r.Unmeasured = nil, count(1)
	}
	if attempt.StatusCode == 0 {
		if err := ctx.Err(); err != nil {
			return r, context.Cause(ctx)
		}
		if attempt.Class == messaging.ClassTimeout && out.Timeout > 0 {
			return r, fmt.Errorf("http: timeout after %dms", out.Timeout.Milliseconds())
		}
		return r, fmt.Errorf("http: %s", attempt.Error)
	}
	r.Output = map[string]any{"status": attempt.StatusCode, "response": answer(attempt)}
	if !attempt.Success() {
		return r, fmt.Errorf("HTTP %d", attempt.StatusCode)
	}
	if writes {
		r.Acted, r.Unmeasured = count(1), nil
	}
	return r, nil
}

// answer is the body as JSON, else as text, else null. A body that was cut is
// no JSON any more.
func answer(a *messaging.Attempt) any {
	if a.ResponseBody == "" {
		return nil
	}
	var value any
	if !a.ResponseTruncated && decodeJSON([]byte(a.ResponseBody), &value) == nil {
		return value
	}
	return a.ResponseBody
}

func headers(config map[string]any) map[string]string {
	given, _ := config["headers"].(map[string]any)
	if len(given) == 0 {
		return nil
	}
	out := make(map[string]string, len(given))
	for name, value := range given {
		out[name] = textOf(value)
	}
	return out
}

// payload is a body as bytes: a text verbatim, everything else as JSON.
func payload(body any) ([]byte, error) {
	if text, ok := body.(string); ok {
		return []byte(text), nil
	}
	return encodeJSON(body)
}

func timeout(config map[string]any) time.Duration {
	number, ok := config["timeoutMs"].(json.Number)
	if !ok {
		return 0
	}
	ms, err := number.Float64()
	if err != nil {
		return 0
	}
	return max(time.Millisecond, time.Duration(ms*float64(time.Millisecond)))
}

// durable adds a delivery in the transaction that saves the step.
func (s *Service) durable(ctx context.Context, step *Step) (Result, error) {
	req := s.request(step, text(step.Config, "url", ""))
	req.Method = method(step.Config, "POST")
	req.Timeout = timeout(step.Config)
	body, given := step.Config["body"]
	if !given || body == nil {
		body = map[string]any{}
	}
	var err error
	if req.Payload, err = payload(body); err != nil {
		return Result{}, err
	}
	if step.Config["ordering"] == "run" {
		req.OrderingKey = step.RunID
	}
	wait, _ := step.Config["waitForDelivery"].(bool)
	if wait && step.walk.before {
		return Result{}, errors.New("a flow that runs before a write cannot wait for a delivery")
	}
	req.NotifyFinished = wait
	r, err := s.enqueue(ctx, req)
	if err == nil && wait {
		r.wait = &waitState{Kind: waitDelivery, Key: r.Output["deliveryId"].(string)}
	}
	return r, err
}

func (s *Service) request(step *Step, url string) messaging.Request {
	req := messaging.Request{
		Source: messaging.SourceFlow, RefID: step.NodeID, TargetKey: bounded(step.FlowName + ":" + step.NodeID), Label: "flow:" + step.NodeID,
		DedupKey: bounded(step.deliveryKey()), URL: url, Headers: headers(step.Config),
		RunID: step.RunID, StepID: step.NodeID, OrganizationID: step.OrganizationID,
	}
	if secret := text(step.Config, "signingSecret", ""); secret != "" {
		req.Secret = []byte(secret)
	}
	return req
}

// deliveryKey is Key with the path of a subflow's node.
func (s *Step) deliveryKey() string {
	return strings.Replace(s.Key(), s.RunID+":", s.RunID+":"+s.walk.st.flowFrame(len(s.walk.st.Frames)-1).Prefix, 1)
}

// bounded keeps a key within the outbox's 191 bytes.
func bounded(key string) string {
	if len(key) <= 191 {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return strings.ToValidUTF8(key[:126], "") + ":" + hex.EncodeToString(sum[:])
}

func (s *Service) enqueue(ctx context.Context, req messaging.Request) (Result, error) {
	done, err := s.outbox.Enqueue(ctx, req)
	if err != nil {
		return Result{}, err
	}
	return Result{Output: map[string]any{"deliveryId": done.ID, "enqueued": true}, Unmeasured: count(1)}, nil
}

// notify hands a notification over as an http delivery.
func (s *Service) notify(ctx context.Context, step *Step) (Result, error) {
	body := map[string]any{"type": "notification", "flow": step.FlowName, "runId": step.RunID, "nodeId": step.NodeID}
	for key, value := range step.Config {
		if !slices.Contains([]string{"url", "headers", "signingSecret"}, key) {
			body[key] = value
		}
	}
	req := s.request(step, text(step.Config, "url", ""))
	req.Method = "POST"
	var err error
	if req.Payload, err = payload(body); err != nil {
		return Result{}, err
	}
	return s.enqueue(ctx, req)
}
