package webhooks

import (
	"encoding/json"

	"github.com/objecthost/objecthost/core/object"
)

// ObjectName is the object whose records are webhooks.
const ObjectName = "sys_webhook"

// The columns of sys_webhook.
const (
	fieldName           = "name"
	fieldLabel          = "label"
	fieldObjectName     = "object_name"
	fieldTriggers       = "triggers"
	fieldURL            = "url"
	fieldMethod         = "method"
	fieldDescription    = "description"
	fieldActive         = "active"
	fieldPaused         = "paused"
	fieldDefinition     = "definition_json"
	fieldSecret         = "signing_secret"
	fieldHeaders        = "headers_secret"
	fieldAuth           = "auth_secret"
	fieldManagedBy      = "managed_by"
	fieldCustomized     = "customized"
	fieldDisabledReason = "disabled_reason"
	fieldFailingSince   = "failing_since"
	fieldLastSuccess    = "last_success_at"
)

// labels are the columns' names as people read them.
var labels = map[string]string{
	fieldName: "Name", fieldLabel: "Label", fieldObjectName: "Object", fieldTriggers: "Triggers",
	fieldURL: "URL", fieldMethod: "Method", fieldDescription: "Description", fieldActive: "Active",
	fieldPaused: "Paused", fieldDefinition: "Definition", fieldSecret: "Signing secret",
	fieldHeaders: "Custom headers", fieldAuth: "Credentials", fieldManagedBy: "Managed by",
	fieldCustomized: "Customized", fieldDisabledReason: "Disabled reason",
	fieldFailingSince: "Failing since", fieldLastSuccess: "Last success",
}

// Values of managed_by.
const (
	managedByAdmin    = "admin"
	managedByPackage  = "package"
	managedByPlatform = "platform"
)

// Schema is the object sys_webhook.
func Schema() object.Schema {
	return object.Schema{
		Name:             ObjectName,
		Label:            "Webhook",
		PluralLabel:      "Webhooks",
		Description:      "Sends record events to a URL.",
		Icon:             "webhook",
		IsSystem:         true,
		ManagedBy:        "config",
		NameField:        fieldName,
		HighlightFields:  []string{fieldName, fieldURL, fieldActive},
		SearchableFields: []string{fieldName, fieldLabel, fieldURL},
		Fields:           fields(),
		Indexes: []object.Index{
			{Name: "sys_webhook_name", Fields: []string{fieldName}, Unique: object.UniqueOrganization},
			{Fields: []string{fieldObjectName}},
			{Fields: []string{fieldActive, fieldObjectName}},
		},
		ListViews: map[string]object.ListView{
			"all_webhooks": view("all_webhooks", "All Webhooks", ""),
			"active":       view("active", "Active", `[{"field":"active","operator":"equals","value":true}]`),
			"inactive":     view("inactive", "Inactive", `[{"field":"active","operator":"equals","value":false}]`),
			"by_object":    sorted(view("by_object", "By Object", ""), `[{"field":"object_name","order":"asc"},{"field":"name","order":"asc"}]`),
		},
	}
}

func fields() object.Fields {
	f := object.Fields{
		{Name: fieldName, Type: object.Text, Required: true, MaxLength: ptr(100),
			Description: "Unique machine name: lower-case letters, digits and _."},
		{Name: fieldLabel, Type: object.Text, MaxLength: ptr(200)},
		{Name: fieldObjectName, Type: object.Text, MaxLength: ptr(100),
			Description: "The object whose events are sent. Empty means every object that is not a system object."},
		{Name: fieldTriggers, Type: object.Multiselect, Options: options(
			triggerCreate, triggerUpdate, triggerDelete, triggerUndelete, triggerBulkUpdate, triggerBulkDelete),
			Description: "What is sent. Empty matches nothing."},
		{Name: fieldURL, Type: object.Text, Required: true, MaxLength: ptr(2048),
			Description: "Absolute http or https URL, sent byte for byte as written."},
		{Name: fieldMethod, Type: object.Select, Options: options(methods...), DefaultValue: json.RawMessage(`"post"`)},
		{Name: fieldDescription, Type: object.Textarea},
		{Name: fieldActive, Type: object.Boolean, Required: true, DefaultValue: json.RawMessage(`true`),
			Description: "An inactive webhook matches no events; deliveries that wait are held."},
		{Name: fieldPaused, Type: object.Boolean, Required: true, DefaultValue: json.RawMessage(`false`),
			Description: "A paused webhook still matches events; its deliveries are held until it is resumed."},
		{Name: fieldDefinition, Type: object.Code, Required: true, DefaultValue: json.RawMessage(`"{}"`),
			Description: "The webhook as authored, as a JSON object: timeoutMs, retryPolicy, ordering and more."},
		{Name: fieldSecret, Type: object.Secret, Description: "Signs every delivery with HMAC-SHA256."},
		{Name: fieldHeaders, Type: object.Secret,
			Description: `Custom HTTP headers as a flat JSON object of texts: {"X-Team": "crm"}.`},
		{Name: fieldAuth, Type: object.Secret,
			Description: "Credentials of the definition's authentication."},
		{Name: fieldManagedBy, Type: object.Select, Readonly: true,
			Options:      options(managedByPlatform, managedByPackage, managedByAdmin),
			DefaultValue: json.RawMessage(`"` + managedByAdmin + `"`)},
		{Name: fieldCustomized, Type: object.Boolean, Readonly: true, DefaultValue: json.RawMessage(`false`),
			Description: "A package's webhook that was edited here; a new version of the package leaves it alone."},
		{Name: fieldDisabledReason, Type: object.Text, Readonly: true, MaxLength: ptr(500),
			Description: "Why the host switched the webhook off."},
		{Name: fieldFailingSince, Type: object.Datetime, Readonly: true,
			Description: "The first failure since the last success."},
		{Name: fieldLastSuccess, Type: object.Datetime, Readonly: true},
	}
	for i := range f {
		f[i].Label = labels[f[i].Name]
	}
	return f
}

func options(values ...string) []object.Option {
	out := make([]object.Option, len(values))
	for i, value := range values {
		out[i] = object.Option{Label: value, Value: value}
	}
	return out
}

func view(name, label, filter string) object.ListView {
	v := object.ListView{
		Type: "grid", Name: name, Label: label,
		Data:       json.RawMessage(`{"provider":"object","object":"` + ObjectName + `"}`),
		Columns:    []string{fieldName, fieldLabel, fieldObjectName, fieldTriggers, fieldURL, fieldMethod, fieldActive, fieldPaused, fieldDisabledReason},
		Sort:       json.RawMessage(`[{"field":"name","order":"asc"}]`),
		Pagination: json.RawMessage(`{"pageSize":50}`),
	}
	if filter != "" {
		v.Filter = json.RawMessage(filter)
	}
	return v
}

func sorted(v object.ListView, sort string) object.ListView {
	v.Sort = json.RawMessage(sort)
	return v
}

func ptr(n int) *int { return &n }
