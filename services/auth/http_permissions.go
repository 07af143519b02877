package auth

import (
	"net/http"
	"slices"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
)

// definitions is the metadata service by what is needed of it here.
type definitions interface{ Objects() []*object.Schema }

var metadataKey = core.NewKey[definitions]("metadata")

// objectRights is what a caller may do with an object's records.
type objectRights struct {
	Create     bool     `json:"allowCreate"`
	Read       bool     `json:"allowRead"`
	Edit       bool     `json:"allowEdit"`
	Delete     bool     `json:"allowDelete"`
	Operations []string `json:"apiOperations,omitempty"`
}

type fieldRights struct {
	Readable bool `json:"readable"`
	Editable bool `json:"editable"`
}

// permissions is the answer of me/permissions. Objects has a right for every
// object that the caller may do anything with, and "*" for those that it does
// not name. Fields names the hidden ones, as <object>.<field>.
type permissions struct {
	Authenticated     bool                    `json:"authenticated"`
	UserID            *string                 `json:"userId"`
	TenantID          *string                 `json:"tenantId"`
	Positions         []string                `json:"positions"`
	PermissionSets    []string                `json:"permissionSets"`
	Objects           map[string]objectRights `json:"objects"`
	Fields            map[string]fieldRights  `json:"fields"`
	SystemPermissions []string                `json:"systemPermissions"`
	TabPermissions    map[string]string       `json:"tabPermissions"`
}

func (p *Plugin) servePermissions(_ http.ResponseWriter, r *http.Request) (any, error) {
	ctx, caller := r.Context(), identity.From(r.Context())
	may, err := p.service.authorityOf(ctx)
	if err != nil {
		return nil, err
	}
	out := permissions{
		Authenticated: true, UserID: orNull(caller.UserID), TenantID: orNull(caller.OrganizationID), Positions: []string{},
		PermissionSets: []string{}, Objects: map[string]objectRights{}, Fields: map[string]fieldRights{},
		SystemPermissions: []string{}, TabPermissions: map[string]string{},
	}
	if caller.UserID != "" && p.service.dir != nil {
		g, err := p.service.grantOf(ctx, caller.UserID, caller.OrganizationID)
		if err != nil {
			return nil, err
		}
		out.Positions, out.PermissionSets = append(slices.Clone(g.roles), "everyone"), append(out.PermissionSets, g.roles...)
	}
	for _, name := range p.known {
		if may.Has(name) {
			out.SystemPermissions = append(out.SystemPermissions, name)
		}
	}
	// No object has this name, so that only what holds for all allows it.
	out.Objects["*"] = may.rights("*", nil)
	metadata, err := core.Lookup(ctx, p.host, metadataKey)
	if core.IsServiceNotFound(err) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	for _, s := range metadata.Objects() {
		if s.Permission != "" && !may.Has(s.Permission) {
			continue
		}
		rights := may.rights(s.Name, s)
		if !rights.Read && !rights.Create && !rights.Edit && !rights.Delete {
			continue
		}
		out.Objects[s.Name] = rights
		for i := range s.Fields {
			if f := &s.Fields[i]; f.Permission != "" && !may.Has(f.Permission) {
				out.Fields[s.Name+"."+f.Name] = fieldRights{}
			}
		}
	}
	return out, nil
}

// rights is what the caller may do with an object that its definition leaves
// open; nil for any object.
func (a authority) rights(name string, s *object.Schema) objectRights {
	may := func(op identity.Operation, method string) bool {
		return a.Can(op, name) && (s == nil || s.Allows(method))
	}
	rights := objectRights{
		Create: may(identity.OperationCreate, object.MethodCreate), Edit: may(identity.OperationUpdate, object.MethodUpdate),
		Delete: may(identity.OperationDelete, object.MethodDelete),
		Read:   may(identity.OperationRead, object.MethodGet) || may(identity.OperationList, object.MethodList),
	}
	if s == nil {
		return rights
	}
	for _, m := range []struct {
		op     identity.Operation
		method string
	}{
		{identity.OperationRead, object.MethodGet}, {identity.OperationList, object.MethodList}, {identity.OperationCreate, object.MethodCreate},
		{identity.OperationUpdate, object.MethodUpdate}, {identity.OperationDelete, object.MethodDelete},
	} {
		if may(m.op, m.method) {
			rights.Operations = append(rights.Operations, m.method)
		}
	}
	return rights
}
