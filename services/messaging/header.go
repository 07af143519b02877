package messaging

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of an author's headers.
const (
	maxHeaders     = 64
	maxHeaderName  = 256
	maxHeaderValue = 8 << 10
	maxHeaderBytes = 32 << 10
)

// HeaderError is returned for a header that cannot be sent. It names the
// header and never holds the value.
type HeaderError struct {
	// Name is the header's name as written, "" for the set as a whole.
	Name string
	// Reason says what is wrong.
	Reason string
}

func (e *HeaderError) Error() string {
	if e.Name == "" {
		return "headers: " + e.Reason
	}
	name := e.Name
	if len(name) > 64 {
		name = strings.ToValidUTF8(name[:64], "") + "…"
	}
	return "header " + strconv.QuoteToASCII(name) + ": " + e.Reason
}

// reservedHeaders are set by the sender or belong to one connection; the
// prefixes x-objectstack- and webhook- are reserved as well.
var reservedHeaders = map[string]bool{
	"Host": true, "Content-Length": true, "Transfer-Encoding": true, "Connection": true,
	"Accept-Encoding": true, "Trailer": true, "Te": true, "Upgrade": true, "Expect": true,
	"Keep-Alive": true, "Proxy-Connection": true, "Proxy-Authorization": true, "Proxy-Authenticate": true,
}

// ValidateHeaders tells whether an author's headers can be sent as they are: legal
// names and values, none of the reserved names in any letter case, and no two
// that differ in letter case only. Values are UTF-8 and arrive as the same
// bytes, without white space around them. At most 64 headers of 32 KiB together.
// The error is a [*HeaderError] for the first bad name in alphabetical order.
func ValidateHeaders(h map[string]string) error {
	if len(h) > maxHeaders {
		return &HeaderError{Reason: fmt.Sprintf("%d headers, at most %d are sent", len(h), maxHeaders)}
	}
	names := make([]string, 0, len(h))
	size := 0
	for name, value := range h {
		names = append(names, name)
		size += len(name) + len(value) + 4
	}
	sort.Strings(names)
	seen := make(map[string]bool, len(h))
	for _, name := range names {
		if err := validateHeader(name, h[name]); err != nil {
			return err
		}
		key := http.CanonicalHeaderKey(name)
		if seen[key] {
			return &HeaderError{name, "is given twice, in different letter case"}
		}
		seen[key] = true
	}
	if size > maxHeaderBytes {
		return &HeaderError{Reason: fmt.Sprintf("%d bytes together, at most %d are sent", size, maxHeaderBytes)}
	}
	return nil
}

func validateHeader(name, value string) error {
	switch {
	case name == "":
		return &HeaderError{`(empty)`, "name is empty"}
	case len(name) > maxHeaderName:
		return &HeaderError{name, fmt.Sprintf("name is longer than %d bytes", maxHeaderName)}
	}
	for i := 0; i < len(name); i++ {
		if !tokenByte(name[i]) {
			return &HeaderError{name, "name has a character that is not allowed"}
		}
	}
	if reservedName(name) {
		return &HeaderError{name, "is reserved"}
	}
	if len(value) > maxHeaderValue {
		return &HeaderError{name, fmt.Sprintf("value is longer than %d bytes", maxHeaderValue)}
	}
	if !utf8.ValidString(value) {
		return &HeaderError{name, "value is not valid UTF-8"}
	}
	for i := 0; i < len(value); i++ {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return &HeaderError{name, "value has a line break or another control character"}
		}
	}
	return nil
}

func reservedName(name string) bool {
	key := http.CanonicalHeaderKey(name)
	return reservedHeaders[key] || strings.HasPrefix(key, "X-Objectstack-") || strings.HasPrefix(key, "Webhook-")
}

// tokenByte reports RFC 9110's tchar.
func tokenByte(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	return c != 0 && strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// ValidateMethod tells whether requests can be sent with a method, in any
// letter case: GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS.
func ValidateMethod(method string) error {
	if _, ok := methodName(method); !ok {
		return fmt.Errorf("method: %.20q is not one of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS", method)
	}
	return nil
}

// methodName returns the upper-case method.
func methodName(method string) (string, bool) {
	for _, m := range [...]string{"POST", "GET", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"} {
		if strings.EqualFold(m, method) && len(m) == len(method) {
			return m, true
		}
	}
	return "", false
}

// The kinds of [Authentication].
const (
	AuthNone   = "none"
	AuthBearer = "bearer"
	AuthBasic  = "basic"
	AuthAPIKey = "api-key"
)

// Authentication is applied to each request. It wins over an author's header
// of the same name and over the URL's userinfo.
type Authentication struct {
	// Type is none, bearer, basic or api-key; empty is none.
	Type string `json:"type"`
	// Credentials by kind: bearer {token}; basic {username, password}; api-key
	// {key} and optionally {header}, X-API-Key when absent.
	Credentials map[string]string `json:"credentials,omitempty"`
}

// Validate returns an error that names the credential that is missing, unknown
// or unusable, never its value.
func (a *Authentication) Validate() error {
	_, _, err := a.header()
	return err
}

// header returns the header that carries the credentials, "" for none.
func (a *Authentication) header() (name, value string, err error) {
	if a == nil {
		return "", "", nil
	}
	known := map[string][]string{
		"": nil, AuthNone: nil, AuthBearer: {"token"}, AuthBasic: {"username", "password"}, AuthAPIKey: {"key", "header"},
	}
	keys, ok := known[a.Type]
	if !ok {
		return "", "", fmt.Errorf("authentication: type %.20q is not one of none, bearer, basic, api-key", a.Type)
	}
	for key := range a.Credentials {
		if !slices.Contains(keys, key) {
			return "", "", fmt.Errorf("authentication: credential %.40q is unknown for type %.20q", key, a.Type)
		}
	}
	c := a.Credentials
	name = "Authorization"
	switch a.Type {
	case AuthBearer:
		value = "Bearer " + c["token"]
		err = required(c, "token")
	case AuthBasic:
		value = basicAuth(c["username"], c["password"])
		if err = required(c, "username"); err == nil && strings.Contains(c["username"], ":") {
			err = fmt.Errorf("authentication: credential \"username\" has a colon")
		}
	case AuthAPIKey:
		if name = "X-Api-Key"; c["header"] != "" {
			name = http.CanonicalHeaderKey(c["header"])
		}
		value = c["key"]
		err = required(c, "key")
	default:
		return "", "", nil
	}
	if err == nil {
		err = validateHeader(name, value)
	}
	if err != nil {
		return "", "", err
	}
	return name, value, nil
}

func required(credentials map[string]string, key string) error {
	if credentials[key] == "" {
		return fmt.Errorf("authentication: credential %q is missing", key)
	}
	return nil
}

func basicAuth(user, pass string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+pass))
}
