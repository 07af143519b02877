package automation

import (
	"encoding/json"

	"github.com/objecthost/objecthost/core/object"
)

// RunObject is the object of the run log.
const RunObject = "sys_automation_run"

// Objects are the service's tables as the data API serves them: read only, and
// without the state of runs.
func Objects() []object.Schema {
	fields := object.Fields{
		field("flow_name", "Flow", object.Text), field("flow_version", "Version", object.Number), statusField(),
		field("trigger_type", "Trigger", object.Text), field("object_name", "Object", object.Text), field("record_id", "Record", object.Text),
		field("event_id", "Event", object.Text), field("user_id", "User", object.Text),
		field("started_at", "Started at", object.Datetime), field("completed_at", "Completed at", object.Datetime),
		field("duration_ms", "Duration (ms)", object.Number), field("error", "Error", object.Text), field("error_node", "Failed at", object.Text),
		field("steps_json", "Steps", object.Textarea), field("summary_json", "Summary", object.Textarea), output(),
		field("wait_kind", "Waits for", object.Text), field("wait_key", "Waits for key", object.Text), field("wake_at", "Goes on at", object.Datetime),
		field("depth", "Depth", object.Number), field("crash_count", "Crashes", object.Number), field("claimed_by", "Executed by", object.Text),
		internal("variables_json"), internal("trigger_json"), internal("state_json"), internal("resume_json"), internal("claim_token"),
	}
	return []object.Schema{{
		Name: RunObject, Label: "Flow Run", PluralLabel: "Flow Runs", Icon: "workflow", Fields: fields, External: true, IsSystem: true,
		ManagedBy: "engine-owned", Enable: object.Enable{APIMethods: []string{"get", "list"}},
		ListViews: map[string]object.ListView{
			"recent": runView("recent", "Recent", ""),
			"failed": runView("failed", "Failed", `[{"field":"status","operator":"equals","value":"failed"}]`),
			"open":   runView("open", "Open", `[{"field":"status","operator":"in","value":["pending","running","paused","retrying"]}]`),
		},
	}}
}

func field(name, label string, kind object.FieldType) object.Field {
	return object.Field{Name: name, Label: label, Type: kind, Readonly: true}
}

// output holds what the flow has read.
func output() object.Field {
	f := field("output_json", "Output", object.Textarea)
	f.Permission = PermissionReadData
	return f
}

func internal(name string) object.Field {
	f := field(name, name, object.Textarea)
	f.Internal = true
	return f
}

func statusField() object.Field {
	f := field("status", "Status", object.Select)
	for _, status := range []string{"pending", "running", "paused", "retrying", RunCompleted, RunFailed} {
		f.Options = append(f.Options, object.Option{Label: status, Value: status})
	}
	return f
}

func runView(name, label, filter string) object.ListView {
	v := object.ListView{
		Type: "grid", Name: name, Label: label,
		Data:       json.RawMessage(`{"provider":"object","object":"sys_automation_run"}`),
		Columns:    []string{"flow_name", "status", "trigger_type", "object_name", "record_id", "started_at", "duration_ms", "error"},
		Sort:       json.RawMessage(`[{"field":"started_at","order":"desc"}]`),
		Pagination: json.RawMessage(`{"pageSize":50}`),
	}
	if filter != "" {
		v.Filter = json.RawMessage(filter)
	}
	return v
}
