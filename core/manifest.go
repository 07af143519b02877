package core

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// platformID is the prefix of the IDs of the platform's own plugins. Only they
// contribute objects under sys_.
const platformID = "com.objectstack."

var (
	pluginID   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$`)
	namespace  = regexp.MustCompile(`^[a-z][a-z0-9_]{1,19}$`)
	objectName = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)
	// semanticVersion follows semver.org: three numbers without leading zeros,
	// an optional pre-release and optional build metadata.
	semanticVersion = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
		`(-(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*)?` +
		`(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)
)

// ValidNamespace reports whether ns may be a plugin's namespace: a lower-case
// letter and 1 to 19 lower-case letters, digits or single underscores, none of
// the reserved base, system and sys.
func ValidNamespace(ns string) bool {
	return namespace.MatchString(ns) && !strings.Contains(ns, "__") && !slices.Contains([]string{"base", "system", "sys"}, ns)
}

// PlatformPlugin reports whether a plugin with this id is the platform's own.
func PlatformPlugin(id string) bool { return strings.HasPrefix(id, platformID) }

// ValidateManifest returns a *[ManifestError] for each invalid field of a
// manifest, nil for a valid one. Whether what it refers to exists is not
// looked at.
func ValidateManifest(m Manifest) []error {
	v := manifestValidator{plugin: m.ID}
	if !pluginID.MatchString(m.ID) || len(m.ID) > 128 {
		v.add("ID", "must be letters, digits, _ and - separated by dots, at most 128 characters")
	}
	if m.Version != "" && !semanticVersion.MatchString(m.Version) {
		v.add("Version", fmt.Sprintf("%q is not a semantic version", m.Version))
	}
	if m.Namespace != "" && !ValidNamespace(m.Namespace) {
		v.add("Namespace", fmt.Sprintf("%q is not a valid namespace or reserved", m.Namespace))
	}
	v.names("DependsOn", m.DependsOn)
	v.names("After", m.After)
	v.names("Requires", m.Requires)
	v.names("Provides", m.Provides)
	if m.ConfigSchema != nil && !json.Valid(m.ConfigSchema) {
		v.add("ConfigSchema", "is not valid JSON")
	}
	for _, t := range []struct {
		field string
		value time.Duration
	}{{"InitTimeout", m.InitTimeout}, {"StartTimeout", m.StartTimeout}, {"StopTimeout", m.StopTimeout}} {
		if t.value < 0 {
			v.add(t.field, "must not be negative")
		}
	}
	if field := m.Health.invalid(); field != "" {
		v.add(field, "must not be negative")
	}
	for _, o := range m.Contributes.Objects {
		if reason := misnamed(o.Name, m); reason != "" {
			v.add("Contributes.Objects", fmt.Sprintf("%q %s", o.Name, reason))
		}
	}
	for _, r := range m.Contributes.Routes {
		if r.Method == "" || r.Method != strings.ToUpper(r.Method) || !strings.HasPrefix(r.Pattern, "/") || r.Handler == nil {
			v.add("Contributes.Routes", fmt.Sprintf("%q %q needs an upper-case method, a pattern from / and a handler", r.Method, r.Pattern))
		}
		if r.Anonymous && r.Permission != "" {
			v.add("Contributes.Routes", fmt.Sprintf("%q %q cannot be anonymous and need a permission", r.Method, r.Pattern))
		}
	}
	return v.errs
}

type manifestValidator struct {
	plugin string
	errs   []error
}

func (v *manifestValidator) add(field, reason string) {
	v.errs = append(v.errs, &ManifestError{Plugin: v.plugin, Field: field, Reason: reason})
}

// names checks a list of IDs or service names.
func (v *manifestValidator) names(field string, list []string) {
	for i, name := range list {
		switch {
		case name == "":
			v.add(field, "has an empty entry")
		case slices.Contains(list[:i], name):
			v.add(field, fmt.Sprintf("lists %q twice", name))
		}
	}
}

// misnamed tells why a plugin may not contribute an object of that name.
func misnamed(name string, m Manifest) string {
	switch {
	case !objectName.MatchString(name):
		return "is not an object name"
	case strings.Contains(name, "__"):
		return "must not contain __"
	case strings.HasPrefix(name, "sys_"):
		if !PlatformPlugin(m.ID) {
			return "is under sys_, which belongs to the platform"
		}
	case m.Namespace != "" && (!strings.HasPrefix(name, m.Namespace+"_") || len(name) == len(m.Namespace)+1):
		return "must be named " + m.Namespace + "_ and more"
	}
	return ""
}

// conflicts returns a *ManifestError for each namespace and object that two
// plugins claim, and for each object of a plugin without a namespace that lies
// in another's.
func conflicts(members []*member) []error {
	var errs []error
	spaces, objects := make(map[string]string), make(map[string]string)
	for _, m := range members {
		ns, id := m.manifest.Namespace, m.manifest.ID
		if owner, taken := spaces[ns]; taken && ns != "" {
			errs = append(errs, &ManifestError{Plugin: id, Field: "Namespace", Reason: fmt.Sprintf("%q belongs to plugin %q", ns, owner)})
			continue
		}
		spaces[ns] = id
	}
	delete(spaces, "")
	for _, m := range members {
		for _, o := range m.manifest.Contributes.Objects {
			owner, taken := objects[o.Name]
			if !taken && m.manifest.Namespace == "" {
				prefix, _, _ := strings.Cut(o.Name, "_")
				owner, taken = spaces[prefix]
			}
			if taken {
				errs = append(errs, &ManifestError{
					Plugin: m.manifest.ID, Field: "Contributes.Objects", Reason: fmt.Sprintf("%q belongs to plugin %q", o.Name, owner),
				})
				continue
			}
			objects[o.Name] = m.manifest.ID
		}
	}
	return errs
}
