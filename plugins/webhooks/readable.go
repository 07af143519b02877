package webhooks

import (
	"context"
	"errors"
	"fmt"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
)

// carriers are the columns that decide what a webhook sends, and where to.
var carriers = []string{fieldObjectName, fieldURL, fieldTriggers, fieldMethod, fieldDefinition}

// mayRead refuses a webhook that would send its writer what the writer may not
// read: records of its object, or fields that ask for a permission. A webhook for
// all objects is compared with those that there are.
func (d *door) mayRead(ctx context.Context, w *data.Write, v *verdict) error {
	if identity.From(ctx).System || d.authorizer == nil {
		return nil
	}
	written := w.Operation == data.OpCreate
	for _, column := range carriers {
		_, given := w.Values[column]
		_, derived := v.values[column]
		written = written || given || derived
	}
	if !written {
		return nil
	}
	var name string
	for _, values := range []map[string]any{w.Before, w.Values, v.values} {
		if value, ok := values[fieldObjectName]; ok {
			name, _ = value.(string)
		}
	}
	asked := name
	if name == "" {
		asked = "*" // no object's name: only what holds for all of them allows it
	}
	for _, op := range []identity.Operation{identity.OperationRead, identity.OperationList} {
		if err := d.authorizer.Can(ctx, op, asked); err != nil {
			return unreadable(err, "The webhook would send records that you may not read")
		}
	}
	for _, s := range d.objects() {
		if name != "" && s.Name != name || name == "" && !s.IsApp() {
			continue
		}
		if !s.IsApp() && !(s.Allows(object.MethodGet) && s.Allows(object.MethodList)) {
			return data.Refuse(data.CodePermissionDenied, ObjectName, fmt.Sprintf("Nobody may read the records of '%s'", s.Name))
		}
		if err := d.mayReadAll(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// mayReadAll asks for the permissions that an object and its fields ask for.
func (d *door) mayReadAll(ctx context.Context, s *object.Schema) error {
	wanted := []string{s.Permission}
	for i := range s.Fields {
		if f := &s.Fields[i]; !f.Internal && !f.IsSealed() {
			wanted = append(wanted, f.Permission)
		}
	}
	for _, permission := range wanted {
		if permission == "" {
			continue
		}
		if err := d.authorizer.Has(ctx, permission); err != nil {
			return unreadable(err, fmt.Sprintf("The webhook would send what only the permission %s lets you read of '%s'", permission, s.Name))
		}
	}
	return nil
}

func unreadable(err error, message string) error {
	var missing *identity.DeniedError
	switch {
	case errors.Is(err, identity.ErrUnauthenticated):
		return data.Refuse(data.CodeUnauthenticated, ObjectName, "authentication is required")
	case errors.As(err, &missing):
		return data.Refuse(data.CodePermissionDenied, ObjectName, message)
	}
	return fmt.Errorf("authorize webhook write: %w", err)
}
