package data

import (
	"cmp"
	"context"
	"fmt"

	"github.com/objecthost/objecthost/core/identity"
)

// organizations is what an authorizer may know beyond identity.Authorizer.
type organizations interface {
	// SeveralOrganizations reports whether the host has more than the default
	// organization.
	SeveralOrganizations(ctx context.Context) (bool, error)
}

// within selects records whose id another table lists for an organization.
type within struct {
	object, field, organization string
}

// own is the bound of a principal to its organization: the one place where the
// records of organizations are kept apart. Tables that do not tell whose their
// records are belong to the default organization.
func (t *table) own(who identity.Principal) predicate {
	by := t.schema.ScopedBy
	switch {
	case who.Everywhere:
		return constant(true)
	case t.org && who.OrganizationID == "":
		return &leaf{column: t.byName["organization_id"], test: testNull, aside: true}
	case t.org:
		return &leaf{column: t.byName["organization_id"], test: testEq, value: who.OrganizationID}
	case by == nil:
		return constant(who.OrganizationID == "")
	case by.Object == "":
		return t.byID(cmp.Or(who.OrganizationID, identity.DefaultOrganization))
	default:
		return &within{by.Object, by.Field, who.OrganizationID}
	}
}

// within writes the look into the other table.
func (b *builder) within(w *within) {
	b.text(`"id" IN (SELECT `, quote(w.field), " FROM ", quote(w.object), " WHERE organization_id ")
	if w.organization == "" {
		b.text("IS NULL)")
		return
	}
	b.text("= ")
	b.arg(kindText, w.organization)
	b.text(")")
}

// organizationOf is the value of organization_id for what a principal writes.
func organizationOf(who identity.Principal) any {
	if who.OrganizationID == "" {
		return nil
	}
	return who.OrganizationID
}

// mayChooseID reports whether the caller's own id is taken for a new record.
// Ids are unique over all organizations, so that where there are several a
// refused id would tell what another one has.
func (e *Engine) mayChooseID(ctx context.Context) (bool, error) {
	known, ok := e.authorizer.(organizations)
	if !ok || identity.From(ctx).Everywhere {
		return true, nil
	}
	several, err := known.SeveralOrganizations(ctx)
	if err != nil {
		return false, fmt.Errorf("count organizations: %w", err)
	}
	return !several, nil
}

// eachOrganization does a predicate write of the host itself once for each
// organization that has such records, so that no event counts the records of
// several. Other principals have one organization.
func (e *Engine) eachOrganization(ctx context.Context, t *table, p predicate, write func(context.Context) (int64, error)) (int64, error) {
	who := identity.From(ctx)
	if !who.Everywhere || !t.org {
		return write(ctx)
	}
	b := e.builder()
	b.text("SELECT DISTINCT organization_id FROM ", quote(t.name()), " WHERE ")
	b.where(t.scope(ctx, p, false))
	b.text(" ORDER BY organization_id")
	found, err := e.query(ctx, b, []*column{t.byName["organization_id"]})
	if err != nil {
		return 0, fmt.Errorf("read organizations of %s: %w", t.name(), err)
	}
	var matched int64
	for _, record := range found {
		one := who
		one.Everywhere = false
		one.OrganizationID, _ = record["organization_id"].(string)
		n, err := write(identity.With(ctx, one))
		if err != nil {
			return 0, err
		}
		matched += n
	}
	return matched, nil
}
