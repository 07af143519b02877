package auth

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/objecthost/objecthost/core/identity"
)

func TestScopesValidate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		scopes Scopes
		want   string // "" means valid
	}{
		"admin":              {Scopes{"admin"}, ""},
		"data":               {Scopes{"data:read", "data:write"}, ""},
		"object":             {Scopes{"object:account:get", "object:account:write", "object:crm_deal:*"}, ""},
		"system permission":  {Scopes{"webhooks.redeliver", "deliveries.read_payload"}, ""},
		"none":               {Scopes{}, "auth: scopes must name at least one permission"},
		"twice":              {Scopes{"data:read", "data:read"}, `auth: scope "data:read" is given twice`},
		"empty entry":        {Scopes{""}, "auth: scopes must not hold an empty entry"},
		"star":               {Scopes{"*"}, `auth: scope "*" is not admin, data:read, data:write, object:<name>:<op> or a system permission`},
		"one word":           {Scopes{"webhooks"}, `auth: scope "webhooks" is not admin, data:read, data:write, object:<name>:<op> or a system permission`},
		"upper case":         {Scopes{"Admin"}, `auth: scope "Admin" is not admin, data:read, data:write, object:<name>:<op> or a system permission`},
		"every object":       {Scopes{"object:*:get"}, `auth: scope "object:*:get" does not name an object as object:<name>:<op>`},
		"no operation":       {Scopes{"object:account"}, `auth: scope "object:account" does not name an object as object:<name>:<op>`},
		"unknown operation":  {Scopes{"object:account:purge"}, `auth: scope "object:account:purge" does not end in get, list, create, update, delete, read, write or *`},
		"too long":           {Scopes{"a." + strings.Repeat("b", 200)}, "auth: scopes must be at most 200 characters each"},
		"too many":           {make(Scopes, 201), "auth: scopes must be at most 200"},
		"trailing line feed": {Scopes{"data:read\n"}, "auth: scope \"data:read\\n\" is not admin, data:read, data:write, object:<name>:<op> or a system permission"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := test.scopes.Validate(); err != nil {
				got = err.Error()
				var typed *ScopeError
				if !errors.As(err, &typed) {
					t.Errorf("Validate = %T, want *ScopeError", err)
				}
			}
			if got != test.want {
				t.Errorf("Validate = %q, want %q", got, test.want)
			}
		})
	}
}

func TestScopesCan(t *testing.T) {
	t.Parallel()
	all := []identity.Operation{"get", "list", "create", "update", "delete"}
	for _, test := range []struct {
		scope string
		want  []identity.Operation // on account
		other []identity.Operation // on deal
	}{
		{"admin", all, all},
		{"data:read", all[:2], all[:2]},
		{"data:write", all[2:], all[2:]},
		{"object:account:get", all[:1], nil},
		{"object:account:list", all[1:2], nil},
		{"object:account:create", all[2:3], nil},
		{"object:account:update", all[3:4], nil},
		{"object:account:delete", all[4:], nil},
		{"object:account:read", all[:2], nil},
		{"object:account:write", all[2:], nil},
		{"object:account:*", all, nil},
		{"object:accounts:*", nil, nil},
		{"webhooks.manage", nil, nil},
	} {
		t.Run(test.scope, func(t *testing.T) {
			var got, other []identity.Operation
			for _, op := range all {
				if (Scopes{test.scope}).Can(op, "account") {
					got = append(got, op)
				}
				if (Scopes{test.scope}).Can(op, "deal") {
					other = append(other, op)
				}
			}
			if !slices.Equal(got, test.want) || !slices.Equal(other, test.other) {
				t.Errorf("account %v, deal %v, want %v and %v", got, other, test.want, test.other)
			}
		})
	}
}

func TestScopesHas(t *testing.T) {
	t.Parallel()
	s := Scopes{"webhooks.redeliver", "data:read", "object:account:*"}
	for permission, want := range map[string]bool{
		"webhooks.redeliver": true, "webhooks.manage": false, "data:read": false, "object:account:*": false, "": false,
	} {
		if got := s.Has(permission); got != want {
			t.Errorf("Has(%q) = %v, want %v", permission, got, want)
		}
	}
	if !(Scopes{"admin"}).Has("webhooks.manage") {
		t.Error("admin lacks webhooks.manage")
	}
}

// TestScopesLackingIsSound checks that what a maker may hand out never allows
// more than the maker may do itself.
func TestScopesLackingIsSound(t *testing.T) {
	t.Parallel()
	entries := []string{"admin", "data:read", "data:write", "webhooks.manage", "webhooks.rotate"}
	for op := range scopeOperations {
		entries = append(entries, "object:account:"+op, "object:deal:"+op)
	}
	slices.Sort(entries)
	some := rapid.SliceOfNDistinct(rapid.SampledFrom(entries), 1, 6, rapid.ID)
	rapid.Check(t, func(t *rapid.T) {
		own, wanted := Scopes(some.Draw(t, "own")), Scopes(some.Draw(t, "wanted"))
		if own.lacking(wanted) != "" {
			return
		}
		for _, object := range []string{"account", "deal", "third"} {
			for _, op := range scopeOperations["*"] {
				if wanted.Can(op, object) && !own.Can(op, object) {
					t.Fatalf("%v may hand out %v, which can %s %s", own, wanted, op, object)
				}
			}
		}
		for _, p := range []string{"webhooks.manage", "webhooks.rotate", "other.thing"} {
			if wanted.Has(p) && !own.Has(p) {
				t.Fatalf("%v may hand out %v, which has %s", own, wanted, p)
			}
		}
	})
}

func TestScopesLacking(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		own, wanted Scopes
		want        string
	}{
		{Scopes{"admin"}, Scopes{"admin", "data:write", "x.y"}, ""},
		{Scopes{"data:read"}, Scopes{"object:account:read", "object:deal:get"}, ""},
		{Scopes{"data:read"}, Scopes{"object:account:read", "object:deal:*"}, "object:deal:*"},
		{Scopes{"data:read", "data:write"}, Scopes{"object:deal:*"}, ""},
		{Scopes{"object:deal:get", "object:deal:list"}, Scopes{"object:deal:read"}, ""},
		{Scopes{"object:deal:*"}, Scopes{"data:read"}, "data:read"},
		{Scopes{"keys.manage"}, Scopes{"keys.manage", "admin"}, "admin"},
		{nil, Scopes{"data:read"}, "data:read"},
	} {
		if got := test.own.lacking(test.wanted); got != test.want {
			t.Errorf("%v lacking %v = %q, want %q", test.own, test.wanted, got, test.want)
		}
	}
}
