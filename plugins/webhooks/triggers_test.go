package webhooks

import (
	"slices"
	"testing"

	"github.com/objecthost/objecthost/core/event"
)

func TestCase_EVT_10_trigger_spellings(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		value any
		want  []string
	}{
		{nil, nil},
		{[]any{}, nil},
		{"", nil},
		{"[]", nil},
		{[]any{"create"}, []string{"create"}},
		{[]string{"create"}, []string{"create"}},
		{`["create"]`, []string{"create"}},
		{`"create, update"`, []string{"create", "update"}},
		{"create, update", []string{"create", "update"}},
		{"CREATE", []string{"create"}},
		{[]any{" Create ", "create", "UPDATE"}, []string{"create", "update"}},
		{"create,,update", []string{"create", "", "update"}},
		{`["create"`, []string{`["create"`}},
		{[]any{5.0, "create"}, []string{"5", "create"}},
		{true, []string{"true"}},
		{map[string]any{"create": true}, []string{`{"create":true}`}},
	} {
		if got := parseTriggers(tc.value); !slices.Equal(got, tc.want) {
			t.Errorf("parseTriggers(%#v) = %q, want %q", tc.value, got, tc.want)
		}
	}
}

func TestCheckTriggersNamesWhatIsAllowed(t *testing.T) {
	t.Parallel()
	p := checkTriggers([]string{"create", "undelete"}, false)
	if p == nil || p.field != "triggers" || p.code != "invalid_option" || p.value != "undelete" ||
		p.message != `Triggers: "undelete" is not one of: create, update, delete, bulk_update, bulk_delete` ||
		p.constraint["allowed"] != "create, update, delete, bulk_update, bulk_delete" ||
		!slices.Equal(p.options, []string{"create", "update", "delete", "bulk_update", "bulk_delete"}) {
		t.Errorf("got %+v", p)
	}
	if p := checkTriggers([]string{"undelete"}, true); p != nil {
		t.Errorf("undelete with trash: %+v", p)
	}
	if p := checkTriggers([]string{"api"}, true); p == nil || !slices.Equal(p.options,
		[]string{"create", "update", "delete", "undelete", "bulk_update", "bulk_delete"}) {
		t.Errorf("got %+v", p)
	}
	for _, name := range commonTriggers {
		if p := checkTriggers([]string{name}, false); p != nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()
	for eventType, want := range map[string]kind{
		"data.record.created": {"create", "created", false}, "data.record.updated": {"update", "updated", false},
		"data.record.deleted": {"delete", "deleted", false}, "data.record.undeleted": {"undelete", "undeleted", false},
		"data.records.updated": {"bulk_update", "updated", true}, "data.records.deleted": {"bulk_delete", "deleted", true},
	} {
		if got := kinds[eventType]; got != want {
			t.Errorf("%s: got %+v, want %+v", eventType, got, want)
		}
	}
	if _, ok := kinds[event.DeliveryFinished]; ok || len(kinds) != 6 {
		t.Errorf("unexpected kinds: %v", kinds)
	}
}
