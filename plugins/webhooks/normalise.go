package webhooks

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/messaging"
)

// request is one write of a webhook as it arrived.
type request struct {
	create bool
	// values are the columns that the request gives.
	values map[string]any
	// stored is the row as it is, nil on create. Secrets in it are not read.
	stored map[string]any
	// system marks writes of the host itself.
	system bool
	// lookup finds the schema of an object.
	lookup func(name string) (*object.Schema, bool)
}

// verdict is what becomes of a request: the columns to write in place of the
// request's, and what the log should say.
type verdict struct {
	values map[string]any
	// drop lists columns that the request gave and that are not written, since
	// they keep what is stored.
	drop     []string
	warnings []string
	// definition is what the row's definition says after the write.
	definition *definition
}

// refusal is a write that cannot be made, with all that is wrong.
type refusal struct{ problems []*problem }

func (r *refusal) Error() string {
	messages := make([]string, len(r.problems))
	for i, p := range r.problems {
		messages[i] = p.message
	}
	return strings.Join(messages, "; ")
}

var namePattern = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

var methods = []string{"get", "post", "put", "patch", "delete"}

// normalise applies the rules of a webhook's columns and its definition to a
// request. Errors are *HeaderError, before everything else, or *refusal.
func normalise(in request) (verdict, error) {
	n := &normaliser{request: in, out: map[string]any{}}
	if err := n.readDefinition(); err != nil {
		return verdict{}, err
	}
	n.normaliseColumns()
	n.mergeColumns()
	n.updateDefinition()
	n.mergeSecrets()
	n.check()
	if len(n.problems) > 0 {
		return verdict{}, &refusal{n.problems}
	}
	if n.rewritten {
		n.out[fieldDefinition] = string(n.definition.members.appendJSON(nil))
	}
	return verdict{values: n.out, drop: n.drop, warnings: n.warnings, definition: n.definition}, nil
}

// normaliser holds the state of one normalise call.
type normaliser struct {
	request
	out      map[string]any
	drop     []string
	problems []*problem
	warnings []string
	// definition is the given definition, or the stored one when the request
	// gives none. rewritten tells that its text has to be written anew.
	definition *definition
	given      bool
	rewritten  bool
	// columnHeaders is the word of the headers column.
	columnHeaders secretInput
}

func (n *normaliser) refuse(p *problem) {
	if p != nil {
		n.problems = append(n.problems, p)
	}
}

// readDefinition reads the definition and the custom headers of both sources,
// the headers first: what is wrong with them is reported alone.
func (n *normaliser) readDefinition() error {
	column, err := columnSecret(n.values, fieldHeaders)
	if err != nil {
		return &HeaderError{Reason: "they must be a flat JSON object of texts"}
	}
	if column.state == secretSet {
		if column, err = checkHeaders(column.value); err != nil {
			return err
		}
	}
	n.columnHeaders = column
	source, problem := n.definitionText()
	if problem != nil {
		n.definition = &definition{columns: map[string]any{}}
		n.refuse(problem)
		return nil
	}
	parsed, problems, headers := parseDefinition([]byte(source))
	unusable := parsed == nil || len(problems) > 0 || headers != nil
	switch {
	case n.given && headers != nil:
		return headers
	case n.given:
		n.problems = append(n.problems, problems...)
	case unusable:
		// What is stored was not written through here: it stays as it is, and
		// its deliveries are parked.
		parsed = nil
	}
	if parsed == nil {
		parsed = &definition{columns: map[string]any{}}
	}
	n.definition = parsed
	n.rewritten = n.rewritten || parsed.moved
	return nil
}

// definitionText is the definition that holds after the write.
func (n *normaliser) definitionText() (string, *problem) {
	value, given := n.values[fieldDefinition]
	if !given || (value == nil && n.create) {
		stored, _ := n.stored[fieldDefinition].(string)
		if stored == "" {
			return "{}", nil
		}
		return stored, nil
	}
	n.given = true
	switch v := value.(type) {
	case string:
		return v, nil
	case map[string]any:
		source, err := encode(v)
		if err != nil {
			return "", definitionProblem(codeInvalidJSON, "Definition %s", errNotJSON)
		}
		n.rewritten = true
		n.out[fieldDefinition] = string(source)
		return string(source), nil
	case nil:
		return "", definitionProblem(codeRequired, "Definition cannot be cleared")
	}
	return "", definitionProblem(codeInvalidJSON, "Definition %s", errNotObject)
}

// normaliseColumns brings the given columns into the form in which they are
// compared and stored. Values of a wrong type are left to the data service.
func (n *normaliser) normaliseColumns() {
	if value, given := n.values[fieldTriggers]; given && value != nil {
		n.out[fieldTriggers] = anyList(parseTriggers(value))
	}
	if method, ok := n.values[fieldMethod].(string); ok {
		n.out[fieldMethod] = strings.ToLower(strings.TrimSpace(method))
	}
}

// column returns the value that the request gives a column, normalised. A null
// on create counts as left out, as it does for defaults.
func (n *normaliser) column(name string) (any, bool) {
	if value, ok := n.out[name]; ok {
		return value, true
	}
	value, given := n.values[name]
	if n.create && value == nil {
		return nil, false
	}
	return value, given
}

// mergeColumns settles what columns and a given definition say about the same
// thing: a column that is left out takes the definition's value, two words
// that differ are refused.
func (n *normaliser) mergeColumns() {
	if !n.given {
		return
	}
	for _, pair := range columnKeys {
		said, ok := n.definition.columns[pair.column]
		if !ok {
			continue
		}
		value, given := n.column(pair.column)
		if !given {
			n.out[pair.column] = storable(said)
			continue
		}
		if !sameValue(value, said) {
			n.refuse(&problem{field: pair.column, code: codeInvalidValue, message: fmt.Sprintf(
				"%s differs from %q in the definition: give one of the two, or the same value twice",
				labels[pair.column], pair.key)})
		}
	}
}

// updateDefinition carries columns that are written alone into the stored
// definition, where it mentions them.
func (n *normaliser) updateDefinition() {
	if n.given || n.stored == nil {
		return
	}
	for _, pair := range columnKeys {
		value, given := n.column(pair.column)
		said, mentioned := n.definition.columns[pair.column]
		if !given || !mentioned || sameValue(value, said) {
			continue
		}
		raw, err := authored(pair.key, value)
		if err != nil {
			continue // the data service refuses the value
		}
		n.definition.members = n.definition.members.set(pair.key, raw)
		n.rewritten = true
	}
}

// authored is a column's value as a definition writes it, nil for null.
func authored(key string, value any) (json.RawMessage, error) {
	switch v := value.(type) {
	case nil:
		return nil, nil
	case string:
		if key == "method" {
			value = strings.ToUpper(v)
		}
	}
	return encode(value)
}

// mergeSecrets writes the three secrets that the request sets or clears, and
// drops the columns whose echoed mask keeps what is stored.
func (n *normaliser) mergeSecrets() {
	said := n.definition
	secret, err := columnSecret(n.values, fieldSecret)
	if err != nil {
		n.refuse(&problem{field: fieldSecret, code: codeInvalidType, message: "Signing secret must be a text"})
	}
	credentials, err := columnSecret(n.values, fieldAuth)
	if err != nil {
		n.refuse(&problem{field: fieldAuth, code: codeInvalidType, message: "Credentials must be a text or an object"})
	}
	n.settle(fieldSecret, secret, said.secret)
	n.settle(fieldHeaders, n.columnHeaders, said.headers)
	n.settle(fieldAuth, credentials, said.credentials)
	n.checkCredentials()
	if value, ok := n.out[fieldSecret].(string); ok {
		if err := messaging.ValidateSecret([]byte(value), n.definition.rules.signature); err != nil {
			n.refuse(&problem{field: fieldSecret, code: codeInvalidValue, message: "Signing secret: " + err.Error()})
		}
	}
}

// settle decides on one secret. A secret that an earlier release left in the
// stored definition moves into its column with the next write, unless the
// column has one already.
func (n *normaliser) settle(name string, column, said secretInput) {
	if !n.given && n.stored[name] != nil {
		said = secretInput{}
	}
	switch settled := column.over(said); settled.state {
	case secretSet:
		n.out[name] = settled.value
	case secretClear:
		n.out[name] = nil
	default:
		if _, given := n.values[name]; given {
			n.drop = append(n.drop, name)
		}
	}
}

// checkCredentials compares the kind of authentication with the credentials
// that the row has after the write. Those that are stored are compared by the
// door, which can open them.
func (n *normaliser) checkCredentials() {
	kind := n.definition.rules.authType
	none := kind == "" || kind == messaging.AuthNone
	value, written := n.out[fieldAuth]
	credentials, _ := value.(string)
	switch {
	case credentials != "" && none:
		n.refuse(&problem{field: fieldAuth, code: codeInvalidValue,
			message: "Credentials need authentication.type in the definition: bearer, basic or api-key"})
	case credentials != "":
		if _, err := parseAuthentication(kind, credentials); err != nil {
			n.refuse(&problem{field: fieldAuth, code: codeInvalidValue, message: "Credentials: " + err.Error()})
		}
	case !none && (n.given || written) && (written || n.stored[fieldAuth] == nil):
		n.refuse(&problem{field: fieldAuth, code: codeRequired,
			message: fmt.Sprintf("Credentials are required for authentication of type %s", kind)})
	}
}

// check refuses columns whose value no delivery could use.
func (n *normaliser) check() {
	if name, ok := n.written(fieldName).(string); ok && !namePattern.MatchString(name) {
		n.refuse(&problem{field: fieldName, code: codeInvalidFormat, value: name,
			message: "Name must start with a lower-case letter and hold only lower-case letters, digits and _"})
	}
	if url, ok := n.written(fieldURL).(string); ok {
		if err := messaging.ValidateURL(url); err != nil {
			n.refuse(&problem{field: fieldURL, code: codeInvalidURL, message: "URL: " + strings.TrimPrefix(err.Error(), "url: ")})
		}
	}
	if method, ok := n.written(fieldMethod).(string); ok && !slices.Contains(methods, method) {
		list := strings.Join(methods, ", ")
		n.refuse(&problem{field: fieldMethod, code: codeInvalidOption, value: method, options: methods,
			constraint: map[string]any{"allowed": list},
			message:    fmt.Sprintf("Method: %q is not one of: %s", method, list)})
	}
	if name, ok := n.written(fieldObjectName).(string); ok && name != "" {
		n.checkObject(name)
	}
	n.checkTriggers()
}

// written is the value that a column gets in this write, nil for none.
func (n *normaliser) written(column string) any {
	value, _ := n.column(column)
	return value
}

// effective is the value that a column has after the write.
func (n *normaliser) effective(column string) any {
	if value, given := n.column(column); given {
		return value
	}
	return n.stored[column]
}

// checkObject refuses a name that is not an object's exact name: a webhook on
// a misspelled object would never fire, and nobody would be told. The host's
// own declarations may name an object that comes with another package.
func (n *normaliser) checkObject(name string) {
	if name == ObjectName {
		n.refuse(&problem{field: fieldObjectName, code: codeInvalidValue,
			message: "Object: changes of webhooks themselves are never delivered"})
		return
	}
	if name == n.stored[fieldObjectName] {
		return
	}
	if _, known := n.lookup(name); known {
		return
	}
	if n.system && fieldNamePattern.MatchString(name) {
		n.warnings = append(n.warnings, fmt.Sprintf("there is no object %q yet", name))
		return
	}
	message := fmt.Sprintf("Object: there is no object %q", name)
	if near := strings.ToLower(strings.TrimSpace(name)); near != name {
		if _, known := n.lookup(near); known {
			message += fmt.Sprintf("; use %q", near)
		}
	}
	n.refuse(&problem{field: fieldObjectName, code: codeNoReference, value: name, message: message})
}

func (n *normaliser) checkTriggers() {
	_, triggersWritten := n.column(fieldTriggers)
	_, objectWritten := n.column(fieldObjectName)
	if !n.create && !triggersWritten && !objectWritten {
		return
	}
	names := parseTriggers(n.effective(fieldTriggers))
	if len(names) == 0 {
		n.warnings = append(n.warnings, "it has no triggers and will never fire")
		return
	}
	trash := false
	if name, _ := n.effective(fieldObjectName).(string); name != "" {
		if schema, known := n.lookup(name); known {
			trash = schema.Trash
		}
	}
	n.refuse(checkTriggers(names, trash))
}

// sameValue compares a column's value with the definition's.
func sameValue(column, said any) bool {
	if list, ok := said.([]string); ok {
		return column != nil && sameSet(parseTriggers(column), list)
	}
	if said == "" && column == nil {
		return true
	}
	return column == said
}

// storable is a definition's value in the types that records are made of.
func storable(value any) any {
	if list, ok := value.([]string); ok {
		return anyList(list)
	}
	return value
}

func anyList(names []string) []any {
	out := make([]any, len(names))
	for i, name := range names {
		out[i] = name
	}
	return out
}
