package auth

import (
	"encoding/json"

	"github.com/objecthost/objecthost/core/object"
)

// The objects of the service, which the data API serves read only.
const (
	UserObject         = "sys_user"
	OrganizationObject = "sys_organization"
	MemberObject       = "sys_member"
	RoleObject         = "sys_role"
	AuditObject        = "sys_audit_log"
)

// Objects are the tables of users and organizations as the data API serves
// them. Callers see the members of their organization and the users that these
// are; nobody sees passwords, sessions or keys.
func Objects() []object.Schema {
	audit := external(AuditObject, "Audit Entry", "Audit Log", "history", object.Fields{
		text("user_id", "User"), text("key_id", "API key"), text("action", "Action"), text("target_type", "Target type"),
		text("target_id", "Target"), text("ip", "Address"), field("detail_json", "Detail", object.Textarea),
	})
	audit.Permission, audit.ManagedBy, audit.NameField = PermissionReadAudit, "append-only", "action"
	audit.ListViews = map[string]object.ListView{"recent": {
		Type: "grid", Name: "recent", Label: "Recent", Data: json.RawMessage(`{"provider":"object","object":"` + AuditObject + `"}`),
		Columns:    []string{"created_at", "action", "target_type", "target_id", "user_id", "key_id", "ip"},
		Sort:       json.RawMessage(`[{"field":"created_at","order":"desc"}]`),
		Pagination: json.RawMessage(`{"pageSize":50}`),
	}}
	users := external(UserObject, "User", "Users", "user", object.Fields{
		text("name", "Name"), field("email", "Email", object.Email), field("email_verified", "Email verified", object.Boolean),
		field("image", "Image", object.URL), field("disabled_at", "Disabled at", object.Datetime),
	})
	users.NameField, users.ScopedBy = "name", &object.ScopedBy{Object: MemberObject, Field: "user_id"}
	organizations := external(OrganizationObject, "Organization", "Organizations", "building", object.Fields{
		text("name", "Name"), text("slug", "Slug"),
	})
	organizations.NameField, organizations.ScopedBy = "name", &object.ScopedBy{}
	user := field("user_id", "User", object.Lookup)
	user.Reference = UserObject
	members := external(MemberObject, "Member", "Members", "users", object.Fields{user, field("roles", "Roles", object.Tags)})
	roles := external(RoleObject, "Role", "Roles", "shield", object.Fields{
		text("name", "Name"), text("label", "Label"), field("permissions", "Permissions", object.Tags),
	})
	roles.NameField = "label"
	return []object.Schema{users, organizations, members, roles, audit}
}

func external(name, label, plural, icon string, fields object.Fields) object.Schema {
	return object.Schema{
		Name: name, Label: label, PluralLabel: plural, Icon: icon, Fields: fields, External: true, IsSystem: true,
		ManagedBy: "better-auth", Enable: object.Enable{APIMethods: []string{"get", "list"}},
	}
}

func field(name, label string, kind object.FieldType) object.Field {
	return object.Field{Name: name, Label: label, Type: kind, Readonly: true}
}

func text(name, label string) object.Field { return field(name, label, object.Text) }
