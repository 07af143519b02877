package core

import (
	"slices"
)

// orderer sorts plugins by a depth-first walk in the order of registration:
// each plugin comes right after what it depends on, and plugins that nothing
// orders keep their places.
type orderer struct {
	byID   map[string]*member
	mark   map[*member]int
	path   []*member
	cyclic map[*member]bool
	order  []*member
	errs   []error
}

const (
	unvisited = iota
	onPath
	placed
)

// resolve returns the start order and everything that is wrong with it:
// a *MissingDependencyError or *CycleError each, *DuplicateServiceErrors for
// services that two manifests promise, and one *OrderError.
func resolve(members []*member) ([]*member, []error) {
	o := &orderer{byID: make(map[string]*member), mark: make(map[*member]int), cyclic: make(map[*member]bool)}
	for _, m := range members {
		o.byID[m.manifest.ID] = m
	}
	for _, m := range members {
		o.visit(m)
	}
	o.checkServices()
	return o.order, o.errs
}

func (o *orderer) visit(m *member) {
	switch o.mark[m] {
	case placed:
		return
	case onPath:
		o.reportCycle(m)
		return
	}
	o.mark[m] = onPath
	o.path = append(o.path, m)
	for _, id := range m.manifest.DependsOn {
		if o.byID[id] == nil {
			o.errs = append(o.errs, &MissingDependencyError{Plugin: m.manifest.ID, Dependency: id})
		}
	}
	var seen []string
	for _, id := range slices.Concat(m.manifest.DependsOn, m.manifest.After) {
		if dependency := o.byID[id]; dependency != nil && !slices.Contains(seen, id) {
			seen = append(seen, id)
			o.visit(dependency)
		}
	}
	o.path = o.path[:len(o.path)-1]
	o.mark[m] = placed
	o.order = append(o.order, m)
}

func (o *orderer) reportCycle(m *member) {
	ring := o.path[slices.Index(o.path, m):]
	path := make([]string, 0, len(ring)+1)
	for _, r := range ring {
		o.cyclic[r] = true
		path = append(path, r.manifest.ID)
	}
	o.errs = append(o.errs, &CycleError{Kind: "plugin", Path: append(path, m.manifest.ID)})
}

// checkServices compares what plugins require with where its provider stands.
// Plugins on a cycle have no place, so nothing is said about them.
func (o *orderer) checkServices() {
	provider, place := make(map[string]*member), make(map[*member]int)
	for i, m := range o.order {
		place[m] = i
		for _, name := range m.manifest.Provides {
			if other := provider[name]; other != nil {
				o.errs = append(o.errs, &DuplicateServiceError{Service: name, Provider: other.manifest.ID, Plugin: m.manifest.ID})
				continue
			}
			provider[name] = m
		}
	}
	var violations []Violation
	for _, m := range o.order {
		for _, name := range m.manifest.Requires {
			p := provider[name]
			if p == nil || place[p] < place[m] || o.cyclic[p] || o.cyclic[m] {
				continue
			}
			violations = append(violations, Violation{Plugin: m.manifest.ID, Service: name, Provider: p.manifest.ID})
		}
	}
	if violations != nil {
		o.errs = append(o.errs, &OrderError{Violations: violations})
	}
}
