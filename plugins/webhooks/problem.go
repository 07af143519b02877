package webhooks

import "fmt"

// The codes of refused values, as forms know them.
const (
	codeRequired       = "required"
	codeInvalidType    = "invalid_type"
	codeUnknownField   = "unknown_field"
	codeInvalidBoolean = "invalid_boolean"
	codeInvalidNumber  = "invalid_number"
	codeInvalidURL     = "invalid_url"
	codeInvalidJSON    = "invalid_json"
	codeInvalidFormat  = "invalid_format"
	codeInvalidOption  = "invalid_option"
	codeInvalidValue   = "invalid_value"
	codeMinValue       = "min_value"
	codeMaxValue       = "max_value"
	codeMaxItems       = "max_items"
	codeNoReference    = "reference_not_found"
)

// problem is one thing that is wrong with a webhook. Its message never holds a
// secret.
type problem struct {
	field, code, message string
	constraint           map[string]any
	value                any
	options              []string
}

func definitionProblem(code, format string, args ...any) *problem {
	return &problem{field: fieldDefinition, code: code, message: fmt.Sprintf(format, args...)}
}

// HeaderError is a map of custom headers that cannot be sent. It names the
// header and never its value.
type HeaderError struct {
	// Header is the refused name, "" when the map as a whole is refused.
	Header string
	// Reason completes the sentence "the header ...".
	Reason string
}

func (e *HeaderError) Error() string {
	if e.Header == "" {
		return `custom headers refused for "sys_webhook.headers_secret": ` + e.Reason
	}
	return fmt.Sprintf(`custom headers refused for "sys_webhook.headers_secret": header %q %s`, e.Header, e.Reason)
}
