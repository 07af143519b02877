package auth

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/auth/driver"
)

// PermissionReadAudit is the permission for reading sys_audit_log.
const PermissionReadAudit = "audit.read"

// audit is note where there is an audit log.
func (s *Service) audit(ctx context.Context, action, targetType, targetID string, detail any) error {
	if s.dir == nil {
		return nil
	}
	return s.note(ctx, action, targetType, targetID, detail)
}

type clientKey struct{}

// WithClient returns a context that tells the audit log where a request came
// from.
func WithClient(ctx context.Context, c Client) context.Context {
	return context.WithValue(ctx, clientKey{}, c)
}

func clientOf(ctx context.Context) Client {
	c, _ := ctx.Value(clientKey{}).(Client)
	return c
}

// Audit implements identity.Auditor. A service without users keeps no log.
func (s *Service) Audit(ctx context.Context, action, targetType, targetID string, detail any) error {
	if err := s.audit(ctx, action, targetType, targetID, detail); err != nil {
		return fmt.Errorf("auth: write audit log: %w", err)
	}
	return nil
}

func (s *Service) note(ctx context.Context, action, targetType, targetID string, detail any) error {
	caller := identity.From(ctx)
	entry := driver.Entry{
		OrganizationID: caller.OrganizationID, UserID: caller.UserID, KeyID: caller.KeyID,
		Action: action, TargetType: targetType, TargetID: targetID, IP: clip(clientOf(ctx).IP, 64),
	}
	if detail != nil {
		text, err := json.Marshal(detail)
		if err != nil {
			return err
		}
		entry.Detail = string(text)
	}
	return s.record(ctx, entry)
}

func (s *Service) record(ctx context.Context, entry driver.Entry) error {
	entry.ID, entry.At = newLongID(), millis(s.cfg.Now())
	return s.dir.Append(ctx, entry)
}
