package auth_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/auth"
)

func TestRolesDecide(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		acme := h.organization(t, "acme")
		h.person(t, "owner@example.com", acme, auth.RoleOwner)
		h.person(t, "viewer@example.com", acme, auth.RoleViewer)
		h.person(t, "clerk@example.com", acme, auth.RoleViewer)
		h.person(t, "none@example.com", "")
		_, owner := h.in(t, "owner@example.com")
		if _, err := h.PutRole(owner, "clerk", "", auth.Scopes{"object:invoice:write", "webhooks.redeliver"}); err != nil {
			t.Fatal(err)
		}
		clerkID := h.member(t, owner, "clerk@example.com")
		if _, err := h.SetRoles(owner, clerkID, []string{"viewer", "clerk"}); err != nil {
			t.Fatal(err)
		}
		_, viewer := h.in(t, "viewer@example.com")
		_, clerk := h.in(t, "clerk@example.com")
		_, none := h.in(t, "none@example.com")
		can := func(ctx context.Context) (out []string) {
			for _, op := range []identity.Operation{"list", "update"} {
				for _, object := range []string{"invoice", "account"} {
					if h.Can(ctx, op, object) == nil {
						out = append(out, string(op)+" "+object)
					}
				}
			}
			for _, permission := range []string{"webhooks.redeliver", "members.manage", "users.manage", "organizations.manage"} {
				if h.Has(ctx, permission) == nil {
					out = append(out, permission)
				}
			}
			return out
		}
		for name, test := range map[string]struct {
			ctx  context.Context
			want []string
		}{
			"owner":  {owner, []string{"list invoice", "list account", "update invoice", "update account", "webhooks.redeliver", "members.manage", "users.manage", "organizations.manage"}},
			"viewer": {viewer, []string{"list invoice", "list account"}},
			"clerk":  {clerk, []string{"list invoice", "list account", "update invoice", "webhooks.redeliver"}},
			"none":   {none, nil},
		} {
			if diff := cmp.Diff(test.want, can(test.ctx)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		// A key does what its own scopes and its maker's roles allow, both of
		// them, as they are now.
		key, err := h.CreateKey(identity.With(t.Context(), identity.Principal{System: true, UserID: identity.From(clerk).UserID, OrganizationID: acme}),
			auth.KeyRequest{Scopes: auth.Scopes{"admin"}})
		if err != nil {
			t.Fatal(err)
		}
		withKey := h.as(t, key.Secret)
		if diff := cmp.Diff(can(clerk), can(withKey)); diff != "" {
			t.Errorf("the clerk's key:\n%s", diff)
		}
		if _, err := h.SetRoles(owner, clerkID, []string{"viewer"}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"list invoice", "list account"}, can(withKey)); diff != "" {
			t.Errorf("the key after the clerk was made a viewer:\n%s", diff)
		}
		if _, err := h.RemoveMember(owner, clerkID); err != nil {
			t.Fatal(err)
		}
		if got := can(withKey); got != nil {
			t.Errorf("the key after the clerk has left: %v", got)
		}
	})
}

// member is the id of somebody's membership.
func (h *house) member(t *testing.T, ctx context.Context, email string) string {
	t.Helper()
	list, err := h.Members(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		if m.User.Email == email {
			return m.ID
		}
	}
	t.Fatalf("%s is no member", email)
	return ""
}

// Nobody gives, takes, or becomes more than they are.
func TestNobodyRisesByThemselves(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		h.person(t, "owner@example.com", "", auth.RoleOwner)
		h.person(t, "manager@example.com", "", auth.RoleMember)
		victim := h.person(t, "victim@example.com", "", auth.RoleMember)
		_, owner := h.in(t, "owner@example.com")
		for role, permissions := range map[string]auth.Scopes{
			"manager": {"members.manage", "data:read"}, "users": {"users.manage"}, "exporter": {"data:read"},
		} {
			if _, err := h.PutRole(owner, role, "", permissions); err != nil {
				t.Fatal(err)
			}
		}
		self := h.member(t, owner, "manager@example.com")
		if _, err := h.SetRoles(owner, self, []string{"manager", "users"}); err != nil {
			t.Fatal(err)
		}
		_, manager := h.in(t, "manager@example.com")
		acme := h.organization(t, "acme")
		elsewhere := h.person(t, "elsewhere@example.com", acme, auth.RoleOwner)
		boss := h.member(t, manager, "owner@example.com")
		bossID := identity.From(owner).UserID
		for name, err := range map[string]error{
			"a role beyond":         second(h.PutRole(manager, "super", "", auth.Scopes{"admin"})),
			"a role beyond, object": second(h.PutRole(manager, "super", "", auth.Scopes{"object:account:write"})),
			"itself":                second(h.SetRoles(manager, self, []string{"admin"})),
			"the owner":             second(h.SetRoles(manager, boss, []string{"viewer"})),
			"removes the owner":     second(h.RemoveMember(manager, boss)),
			"invites an owner":      second(h.Invite(manager, "x@example.com", []string{"owner"})),
			"makes an owner":        second(h.CreateUser(manager, auth.NewUser{Email: "x@example.com", Password: password, Roles: []string{"owner"}})),
			"adds an owner":         second(h.AddMember(manager, "", victim, []string{"owner"})),
			"a foreign owner":       h.SetPassword(manager, elsewhere, "a new password"),
			"the owner's password":  h.SetPassword(manager, bossID, "a new password"),
			"shuts the owner out":   second(h.SetDisabled(manager, bossID, true)),
		} {
			if !is[*auth.ExceedsError](err) || !is[*identity.DeniedError](err) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, err := range map[string]error{
			"a way in": second(h.CreateUser(manager, auth.NewUser{Email: "x@example.com", Password: password, OrganizationID: acme, Roles: []string{"viewer"}})),
			"itself":   second(h.AddMember(manager, acme, identity.From(manager).UserID, []string{"viewer"})),
		} {
			if !is[*identity.DeniedError](err) {
				t.Errorf("another organization, %s: %v", name, err)
			}
		}
		for name, err := range map[string]error{
			"a built-in role":   second(h.PutRole(owner, "member", "", auth.Scopes{"admin"})),
			"a role in use":     h.DeleteRole(owner, "manager"),
			"no role":           h.DeleteRole(owner, "nope"),
			"an unknown role":   second(h.SetRoles(owner, self, []string{"nope"})),
			"the last owner":    second(h.SetRoles(owner, boss, []string{"viewer"})),
			"leaves":            second(h.RemoveMember(owner, boss)),
			"itself shut out":   second(h.SetDisabled(owner, bossID, true)),
			"an unknown member": second(h.RemoveMember(owner, "nope")),
			"a member again":    second(h.AddMember(owner, "", victim, []string{"viewer"})),
			"an unknown user":   second(h.AddMember(owner, "", "nope", []string{"viewer"})),
			"a taken address":   second(h.CreateUser(owner, auth.NewUser{Email: "OWNER@example.com", Password: password})),
			"no address":        second(h.CreateUser(owner, auth.NewUser{Email: "Ann <a@example.com>", Password: password})),
			"a taken slug":      second(h.CreateOrganization(owner, "Default", "default")),
			"no slug":           second(h.CreateOrganization(owner, "X", "-x")),
		} {
			want := map[string]error{
				"a role in use": auth.ErrRoleInUse, "no role": auth.ErrRoleNotFound, "an unknown role": auth.ErrRoleNotFound,
				"the last owner": auth.ErrLastAdmin, "leaves": auth.ErrLastAdmin, "an unknown member": auth.ErrMemberNotFound,
				"a member again": auth.ErrAlreadyMember, "an unknown user": auth.ErrUserNotFound, "a taken address": auth.ErrEmailTaken,
				"a taken slug": auth.ErrSlugTaken,
			}[name]
			if want == nil && !is[*auth.InvalidError](err) || want != nil && !errors.Is(err, want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := h.DeleteRole(owner, "exporter"); err != nil {
			t.Error(err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// An organization's people see and reach their own organization only, and an
// invitation tells nothing of who exists.
func TestOrganizations(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		acme, umbra := h.organization(t, "acme"), h.organization(t, "umbra")
		h.person(t, "ann@example.com", acme, auth.RoleOwner)
		h.person(t, "bob@example.com", umbra, auth.RoleOwner)
		signed, ann := h.in(t, "ann@example.com")
		_, bob := h.in(t, "bob@example.com")
		if got := identity.From(ann).OrganizationID; got != acme {
			t.Fatalf("acts in %q", got)
		}
		theirs := h.member(t, bob, "bob@example.com")
		for name, err := range map[string]error{
			"a foreign member":       second(h.SetRoles(ann, theirs, []string{"viewer"})),
			"removes a foreign one":  second(h.RemoveMember(ann, theirs)),
			"an unknown member":      second(h.RemoveMember(ann, "nope")),
			"acts in a foreign one":  second(h.Activate(ann, umbra)),
			"acts in an unknown one": second(h.Activate(ann, "nope")),
			"acts in the default":    second(h.Activate(ann, "default")),
		} {
			if !errors.Is(err, auth.ErrMemberNotFound) && !errors.Is(err, auth.ErrOrganizationNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, email := range []string{"bob@example.com", "nobody@example.com"} {
			i, err := h.Invite(ann, email, []string{auth.RoleViewer})
			if err != nil || i.Email != email || i.OrganizationID != acme {
				t.Errorf("Invite(%s) = %+v, %v", email, i, err)
			}
		}
		again, err := h.Invite(ann, "bob@example.com", []string{auth.RoleMember})
		if err != nil {
			t.Fatal(err)
		}
		if list, err := h.Invitations(ann); err != nil || len(list) != 2 {
			t.Errorf("invitations %v, %v", list, err)
		}
		if _, err := h.CancelInvitation(bob, again.ID); !errors.Is(err, auth.ErrInvitationNotFound) {
			t.Errorf("a foreign invitation cancelled: %v", err)
		}
		if _, err := h.AnswerInvitation(ann, again.ID, true); !errors.Is(err, auth.ErrInvitationNotFound) {
			t.Errorf("somebody else's invitation accepted: %v", err)
		}
		own, err := h.OwnInvitations(bob)
		if err != nil || len(own) != 1 || own[0].ID != again.ID {
			t.Fatalf("bob's invitations %v, %v", own, err)
		}
		h.advance(time.Second)
		if _, err := h.AnswerInvitation(bob, again.ID, true); err != nil {
			t.Fatal(err)
		}
		if _, err := h.AnswerInvitation(bob, again.ID, true); !errors.Is(err, auth.ErrInvitationNotFound) {
			t.Errorf("accepted twice: %v", err)
		}
		if _, err := h.Activate(bob, acme); err != nil {
			t.Fatal(err)
		}
		bob = h.as(t, h.token(t, "bob@example.com"))
		list, err := h.Organizations(bob)
		if err != nil || len(list) != 2 || list[0].ID != umbra || list[1].ID != acme {
			t.Errorf("bob's organizations %v, %v", list, err)
		}
		if _, err := h.Activate(bob, acme); err != nil {
			t.Fatal(err)
		}
		inAcme := identity.With(t.Context(), identity.Principal{UserID: identity.From(bob).UserID, SessionID: identity.From(bob).SessionID, OrganizationID: acme})
		if err := h.Has(inAcme, auth.PermissionManageMembers); err == nil {
			t.Error("bob is a member of acme and manages its members")
		}
		if list, err := h.Organizations(h.as(t, signed.Token)); err != nil || len(list) != 1 || list[0].Slug != "acme" {
			t.Errorf("ann's organizations %v, %v", list, err)
		}
		want := []string{
			"invitation.create", "invitation.create", "invitation.create", "member.add", "session.begin", "member.add",
		}
		if diff := cmp.Diff(want, h.actions(t, acme)); diff != "" {
			t.Errorf("audit log of acme (-want +got):\n%s", diff)
		}
	})
}

func (h *house) token(t *testing.T, email string) string {
	signed, _ := h.in(t, email)
	return signed.Token
}
