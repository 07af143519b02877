package pluginsdk

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core/event"
)

// TestContributionsAreValidated: what makes no sense is refused before anything
// runs, with words that name it.
func TestContributionsAreValidated(t *testing.T) {
	handle := func(context.Context, []*event.Event) error { return nil }
	before := func(context.Context, Write) (Record, error) { return nil, nil }
	after := func(context.Context, Write) error { return nil }
	call := func(context.Context, string, json.RawMessage) (json.RawMessage, error) { return nil, nil }
	node := func(context.Context, NodeStep) (NodeResult, error) { return NodeResult{}, nil }
	tests := []struct {
		c    Contributions
		want string // "" is valid
	}{
		{Contributions{}, ""},
		{Contributions{
			Events: []EventHandler{{Name: "a", Handle: handle}}, Before: []BeforeHook{{Object: "o", OnError: FailOpen, Run: before}},
			After: []AfterHook{{Object: "o", Run: after}}, Services: []Service{{Name: "s", Call: call}}, Nodes: []FlowNode{{Type: "x.y", Run: node}},
		}, ""},
		{Contributions{Events: []EventHandler{{Name: "A", Handle: handle}}}, "not a name"},
		{Contributions{Events: []EventHandler{{Name: "a", Handle: handle}, {Name: "a", Handle: handle}}}, "declared twice"},
		{Contributions{Events: []EventHandler{{Name: "a"}}}, "no Handle"},
		{Contributions{Events: []EventHandler{{Name: "a", Handle: handle, Batch: 1001}}}, "Batch must be 0 to 1000"},
		{Contributions{Before: []BeforeHook{{Object: "o", Run: before}}}, "FailClosed or FailOpen"},
		{Contributions{Before: []BeforeHook{{OnError: FailOpen, Run: before}}}, "no object"},
		{Contributions{Before: []BeforeHook{{Object: "o", OnError: FailOpen}}}, "no Run"},
		{Contributions{After: []AfterHook{{Object: "o", Run: after, Deadline: time.Minute}}}, "1 ms to 30 s"},
		{Contributions{After: []AfterHook{{Object: "o", Run: after, Operations: []string{"create", "create"}}}}, "named twice"},
		{Contributions{Services: []Service{{Name: "s"}}}, "a name of its own and Call"},
		{Contributions{Nodes: []FlowNode{{Type: "X", Run: node}}}, "not a name of a type"},
		{Contributions{Nodes: []FlowNode{{Type: "x", Run: node}, {Type: "x", Run: node}}}, "declared twice"},
		{Contributions{Nodes: []FlowNode{{Type: "x"}}}, "no Run"},
		{Contributions{Nodes: []FlowNode{{Type: "x", Run: node, ConfigSchema: json.RawMessage(`{`)}}}, "not valid JSON"},
		{Contributions{Nodes: []FlowNode{{Type: "x", Run: node, Deadline: time.Hour}}}, "1 ms to 5 min"},
	}
	for _, tt := range tests {
		err := tt.c.validate()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("validate = %v, want %q", err, tt.want)
		}
	}
}

// TestErrorsCrossTheBoundary: an error comes out of a status as it went in.
func TestErrorsCrossTheBoundary(t *testing.T) {
	full := &Error{Code: "X_Y", Message: "m", Retryable: true, Object: "o", Field: "f", Fields: json.RawMessage(`[1]`)}
	tests := []struct {
		in        error
		code      string
		retryable bool
	}{
		{full, "X_Y", true},
		{errors.New("plain"), CodeInternal, false},
		{context.DeadlineExceeded, CodeTimeout, true},
		{&Error{Code: CodeDenied, Message: "d"}, CodeDenied, false},
		{&Error{Code: CodeUnavailable, Message: "d", Retryable: true}, CodeUnavailable, true},
		{errors.New("not \xff UTF-8"), CodeInternal, false},
	}
	for _, tt := range tests {
		out := FromStatus(ToStatus(tt.in))
		if !IsCode(out, tt.code) || Retryable(out) != tt.retryable {
			t.Errorf("%v became %v, retryable %t", tt.in, out, Retryable(out))
		}
	}
	var back *Error
	if !errors.As(FromStatus(ToStatus(full)), &back) || back.Object != "o" || back.Field != "f" || string(back.Fields) != "[1]" || back.Message != "m" {
		t.Errorf("the error became %+v", back)
	}
	if err := FromStatus(ToStatus(context.Canceled)); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled call became %v", err)
	}
	if ToStatus(nil) != nil || FromStatus(nil) != nil || ToWire(nil) != nil || FromWire(nil) != nil {
		t.Error("nil became something")
	}
}
