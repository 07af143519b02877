package webhooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/objecthost/objecthost/services/messaging"
)

// mask is what a read shows in place of a stored secret, refPrefix how the
// answer to a write names it. Either one sent back keeps what is stored.
const (
	mask      = "••••••••"
	refPrefix = "secret:sec_"
)

// secretState tells what a request says about a secret.
type secretState int

const (
	// secretAbsent says nothing: what is stored stays.
	secretAbsent secretState = iota
	// secretKeep is an echoed mask or reference: what is stored stays.
	secretKeep
	secretClear
	secretSet
)

// secretInput is one source's word on a secret: a column or the definition.
type secretInput struct {
	state secretState
	value string
}

// says reports whether the input changes what is stored.
func (s secretInput) says() bool { return s.state == secretClear || s.state == secretSet }

// over returns the column's word where it has one, the definition's otherwise.
// An echoed mask is no word: a form that sends back what it was shown must not
// undo a secret written into the definition.
func (s secretInput) over(definition secretInput) secretInput {
	if s.says() {
		return s
	}
	if definition.says() {
		return definition
	}
	return s
}

// secretText reads a secret given as a text.
func secretText(s string) secretInput {
	switch {
	case s == "":
		return secretInput{state: secretClear}
	case s == mask, strings.HasPrefix(s, refPrefix):
		return secretInput{state: secretKeep}
	}
	return secretInput{state: secretSet, value: s}
}

// rawSecret reads a secret given as JSON: a text, null, or an object that is
// kept as its JSON text.
func rawSecret(v json.RawMessage) secretInput {
	if len(v) == 0 || isNull(v) {
		return secretInput{state: secretClear}
	}
	if s, ok := text(v); ok {
		return secretText(s)
	}
	return secretInput{state: secretSet, value: string(v)}
}

// columnSecret reads the value that a request gives a secret column.
func columnSecret(values map[string]any, column string) (secretInput, error) {
	value, given := values[column]
	if !given {
		return secretInput{}, nil
	}
	switch v := value.(type) {
	case nil:
		return secretInput{state: secretClear}, nil
	case string:
		return secretText(v), nil
	}
	raw, err := encode(value)
	if err != nil {
		return secretInput{}, fmt.Errorf("column %s: %w", column, errNotJSON)
	}
	return rawSecret(raw), nil
}

// parseHeaders reads custom headers given as JSON: an object, a text that
// holds one, the mask, or null. An empty object means none.
func parseHeaders(v json.RawMessage) (secretInput, error) {
	input := rawSecret(v)
	if input.state != secretSet {
		return input, nil
	}
	return checkHeaders(input.value)
}

// checkHeaders checks a text that holds the custom headers as a flat JSON
// object of texts and returns it as it is stored.
func checkHeaders(source string) (secretInput, error) {
	headers, err := decodeHeaders(source)
	switch {
	case err != nil:
		return secretInput{}, err
	case len(headers) == 0:
		return secretInput{state: secretClear}, nil
	}
	return secretInput{state: secretSet, value: source}, nil
}

// decodeHeaders reads stored or given headers. Errors are *HeaderError.
func decodeHeaders(source string) (map[string]string, error) {
	all, err := parseMembers([]byte(source))
	if err != nil {
		var twice *duplicateKeyError
		if errors.As(err, &twice) {
			return nil, &HeaderError{Header: twice.key, Reason: "stands there twice"}
		}
		return nil, &HeaderError{Reason: "they must be a flat JSON object of texts"}
	}
	out := make(map[string]string, len(all))
	for _, one := range all {
		value, ok := text(one.value)
		if !ok {
			return nil, &HeaderError{Header: one.key, Reason: "is not a text: the object must be flat and hold texts only"}
		}
		out[one.key] = value
	}
	var refused *messaging.HeaderError
	if err := messaging.ValidateHeaders(out); errors.As(err, &refused) {
		return nil, &HeaderError{Header: refused.Name, Reason: refused.Reason}
	} else if err != nil {
		return nil, &HeaderError{Reason: err.Error()}
	}
	return out, nil
}

// parseAuthentication reads the credentials of a kind of authentication: an
// object of texts, or one text that is the token, username:password, or the
// key. Errors never quote them.
func parseAuthentication(kind, credentials string) (*messaging.Authentication, error) {
	auth := &messaging.Authentication{Type: kind, Credentials: map[string]string{}}
	switch name, password, found := strings.Cut(credentials, ":"); {
	case strings.HasPrefix(strings.TrimSpace(credentials), "{"):
		all, err := parseMembers([]byte(credentials))
		if err != nil {
			return nil, errors.New("authentication: the credentials are not valid JSON")
		}
		for _, one := range all {
			value, ok := text(one.value)
			if !ok {
				return nil, fmt.Errorf("authentication: credential %q is not a text", one.key)
			}
			auth.Credentials[one.key] = value
		}
	case kind == messaging.AuthBearer:
		auth.Credentials["token"] = credentials
	case kind == messaging.AuthAPIKey:
		auth.Credentials["key"] = credentials
	case found:
		auth.Credentials["username"], auth.Credentials["password"] = name, password
	}
	if err := auth.Validate(); err != nil {
		return nil, err
	}
	return auth, nil
}
