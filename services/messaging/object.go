package messaging

import (
	"encoding/json"
	"slices"

	"github.com/objecthost/objecthost/core/object"
)

// The objects of the outbox.
const (
	DeliveryObject = "sys_http_delivery"
	AttemptObject  = "sys_http_attempt"
	TargetObject   = "sys_http_target"
)

// Objects are the outbox's tables as the data API serves them: read only, and
// without sealed values.
func Objects() []object.Schema {
	return []object.Schema{deliverySchema(), attemptSchema(), targetSchema()}
}

func external(name, label, plural string, fields object.Fields) object.Schema {
	return object.Schema{
		Name: name, Label: label, PluralLabel: plural, Fields: fields, External: true, IsSystem: true,
		ManagedBy: "engine-owned", Enable: object.Enable{APIMethods: []string{"get", "list"}},
	}
}

func deliverySchema() object.Schema {
	s := external(DeliveryObject, "HTTP Delivery", "HTTP Deliveries", object.Fields{
		text("source", "Source"), text("ref_id", "Reference"), text("target_key", "Target"), text("dedup_key", "Dedup key"),
		text("label", "Label"), text("url", "URL"), text("method", "Method"), internal("headers_json"), text("signature", "Signature"),
		internal("signing_secret"), number("timeout_ms", "Timeout (ms)"), private("payload_json", "Payload"),
		number("partition_key", "Partition"), number("order_seq", "Order"), status(),
		number("attempts", "Attempts"), number("round", "Round"), text("claimed_by", "Claimed by"), millisOf("claimed_at", "Claimed at"),
		internal("claim_token"), datetime("claim_expires_at", "Claim ends at"), number("crash_count", "Crashes"),
		millisOf("next_retry_at", "Next retry at"), millisOf("last_attempted_at", "Last attempted at"),
		number("response_code", "Response code"), private("response_body", "Response body"),
		boolean("response_truncated", "Response truncated"), text("error", "Error"), datetime("expires_at", "Expires at"),
		datetime("finished_at", "Finished at"), text("event_id", "Event"), text("run_id", "Flow run"), text("step_id", "Flow step"),
		// Described anew, because they have no index that a sort could use.
		changed(), organization(),
	})
	s.Icon = "send"
	sortOnlyBy(&s, "created_at")
	s.ListViews = map[string]object.ListView{
		"recent":   deliveryView("recent", "Recent", ""),
		"failures": deliveryView("failures", "Failures", `[{"field":"status","operator":"in","value":["failed","dead"]}]`),
		"pending":  deliveryView("pending", "Pending", `[{"field":"status","operator":"in","value":["pending","in_flight"]}]`),
	}
	return s
}

// sortOnlyBy lets lists be sorted by the fields that have an index for it: the
// table grows to many millions of rows, which no request may have to sort.
func sortOnlyBy(s *object.Schema, indexed ...string) {
	no := false
	for i := range s.Fields {
		if !slices.Contains(indexed, s.Fields[i].Name) {
			s.Fields[i].Sortable = &no
		}
	}
}

func deliveryView(name, label, filter string) object.ListView {
	v := object.ListView{
		Type: "grid", Name: name, Label: label,
		Data:       json.RawMessage(`{"provider":"object","object":"sys_http_delivery"}`),
		Columns:    []string{"source", "url", "status", "attempts", "response_code", "created_at", "last_attempted_at"},
		Sort:       json.RawMessage(`[{"field":"created_at","order":"desc"}]`),
		Pagination: json.RawMessage(`{"pageSize":50}`),
	}
	if filter != "" {
		v.Filter = json.RawMessage(filter)
	}
	return v
}

func attemptSchema() object.Schema {
	return external(AttemptObject, "HTTP Attempt", "HTTP Attempts", object.Fields{
		text("delivery_id", "Delivery"), number("round", "Round"), number("attempt", "Attempt"), text("node", "Node"),
		datetime("started_at", "Started at"), number("duration_us", "Duration (µs)"), number("dns_us", "DNS (µs)"),
		number("connect_us", "Connect (µs)"), number("tls_us", "TLS (µs)"), number("first_byte_us", "First byte (µs)"),
		text("remote_addr", "Remote address"), long("request_headers", "Request headers"), number("response_code", "Response code"),
		private("response_headers", "Response headers"), private("response_body", "Response body"),
		boolean("response_truncated", "Response truncated"), text("location_host", "Redirect to"),
		text("error_class", "Error class"), text("error", "Error"),
	})
}

func targetSchema() object.Schema {
	return external(TargetObject, "HTTP Target", "HTTP Targets", object.Fields{
		text("source", "Source"), text("target_key", "Key"), text("state", "State"), text("reason", "Reason"),
		number("max_concurrency", "Concurrency"), number("rate_burst", "Rate burst"),
		text("signature_scheme", "Signature"), datetime("failing_since", "Failing since"),
		datetime("last_success_at", "Last success at"),
	})
}

func field(name, label string, kind object.FieldType) object.Field {
	return object.Field{Name: name, Label: label, Type: kind, Readonly: true}
}

func text(name, label string) object.Field     { return field(name, label, object.Text) }
func long(name, label string) object.Field     { return field(name, label, object.Textarea) }
func number(name, label string) object.Field   { return field(name, label, object.Number) }
func datetime(name, label string) object.Field { return field(name, label, object.Datetime) }
func boolean(name, label string) object.Field  { return field(name, label, object.Boolean) }

// millisOf is a time that the API shows as epoch milliseconds.
func millisOf(name, label string) object.Field {
	f := datetime(name, label)
	f.Format = object.FormatEpochMillis
	return f
}

// private is a text that may hold what only some callers may read.
func private(name, label string) object.Field {
	f := long(name, label)
	f.Permission = PermissionReadPayload
	return f
}

func internal(name string) object.Field {
	f := field(name, name, object.Textarea)
	f.Internal = true
	return f
}

func changed() object.Field {
	f := datetime("updated_at", "Last Modified At")
	f.System = true
	return f
}

func organization() object.Field {
	f := field("organization_id", "Organization", object.Lookup)
	f.Reference, f.System, f.Hidden = "sys_organization", true, true
	return f
}

func status() object.Field {
	f := field("status", "Status", object.Select)
	f.Index = true // by what each means
	for _, s := range []Status{StatusPending, StatusInFlight, StatusSuccess, StatusFailed, StatusDead} {
		means := "finished_at IS NULL AND status = '" + string(s) + "'"
		if s.Terminal() {
			means = "ended_as = '" + string(s) + "'"
		}
		f.Options = append(f.Options, object.Option{Label: string(s), Value: string(s), Means: means})
	}
	return f
}
