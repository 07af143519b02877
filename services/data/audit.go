package data

import (
	"context"
	"fmt"

	"github.com/objecthost/objecthost/core/identity"
)

// audit writes what somebody did to records of the host's own objects, such as
// webhooks, into the log that the authorizer keeps, in the write's transaction.
// Values do not go there, only the names of the fields. What the host does by
// itself is no administrative act, nor is a record of an app, or one that users
// make by the way (system-data), such as a notification.
func (e *Engine) audit(ctx context.Context, t *table, changes []*Change) error {
	auditor, ok := e.authorizer.(identity.Auditor)
	who := identity.From(ctx)
	if !ok || t.schema.IsApp() || t.schema.ManagedBy == "system-data" || who.UserID == "" && who.KeyID == "" {
		return nil
	}
	for _, change := range changes {
		detail := map[string]any{}
		if change.Changes != nil {
			detail["fields"] = sortedKeys(change.Changes)
		}
		if change.Matched > 0 {
			detail["matched"] = change.Matched
		}
		if err := auditor.Audit(ctx, t.name()+"."+string(change.Operation), t.name(), change.ID, detail); err != nil {
			return fmt.Errorf("audit a write of %s: %w", t.name(), err)
		}
	}
	return nil
}

// auditDefinition is the same for a definition.
func (e *Engine) auditDefinition(ctx context.Context, name string, saved Saved) error {
	auditor, ok := e.authorizer.(identity.Auditor)
	if !ok {
		return nil
	}
	return auditor.Audit(ctx, "metadata.save", "object", name, map[string]any{"version": saved.Version})
}
