package webhooks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// member is one key of a JSON object with the text of its value.
type member struct {
	key   string
	value json.RawMessage
}

// members is a JSON object that keeps the order and the exact values of its
// keys, so that a definition comes back as its author wrote it.
type members []member

// The ways in which a text is not the JSON object that was asked for. Their
// texts never quote the input, which may hold a secret.
var (
	errNotUTF8   = errors.New("is not valid UTF-8")
	errNotJSON   = errors.New("is not valid JSON")
	errNotObject = errors.New("must be a JSON object")
)

// duplicateKeyError names a key that stands twice in one object.
type duplicateKeyError struct{ key string }

func (e *duplicateKeyError) Error() string {
	return fmt.Sprintf("holds the key %q twice", e.key)
}

// parseMembers reads one JSON object and nothing after it. A key that stands
// twice is refused, because readers disagree on which of the two counts.
func parseMembers(text []byte) (members, error) {
	if !utf8.Valid(text) {
		return nil, errNotUTF8
	}
	if !json.Valid(text) {
		return nil, errNotJSON
	}
	if trimmed := bytes.TrimLeft(text, " \t\r\n"); trimmed[0] != '{' {
		return nil, errNotObject
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	if _, err := dec.Token(); err != nil {
		return nil, errNotJSON
	}
	var (
		out  = members{}
		seen = map[string]bool{}
	)
	for dec.More() {
		token, err := dec.Token()
		key, isText := token.(string)
		if err != nil || !isText {
			return nil, errNotJSON
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, errNotJSON
		}
		if seen[key] {
			return nil, &duplicateKeyError{key}
		}
		seen[key] = true
		out = append(out, member{key, value})
	}
	return out, nil
}

// appendJSON writes the object to dst.
func (m members) appendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	for i, one := range m {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, quote(one.key)...)
		dst = append(dst, ':')
		dst = append(dst, one.value...)
	}
	return append(dst, '}')
}

// get returns the value of key, nil when it is absent or null.
func (m members) get(key string) json.RawMessage {
	for _, one := range m {
		if one.key == key && !isNull(one.value) {
			return one.value
		}
	}
	return nil
}

// has reports whether key stands in the object, be it with null.
func (m members) has(key string) bool {
	for _, one := range m {
		if one.key == key {
			return true
		}
	}
	return false
}

// set replaces the value of a key in place, or adds the key at the end. A nil
// value removes the key.
func (m members) set(key string, value json.RawMessage) members {
	for i := range m {
		if m[i].key != key {
			continue
		}
		out := append(members{}, m...)
		if value == nil {
			return append(out[:i], out[i+1:]...)
		}
		out[i].value = value
		return out
	}
	if value == nil {
		return m
	}
	return append(append(members{}, m...), member{key, value})
}

func isNull(value json.RawMessage) bool { return string(value) == "null" }

// quote is s as a JSON text that keeps <, > and &.
func quote(s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	// A string always encodes, and a bytes.Buffer takes every write.
	_ = enc.Encode(s)
	return bytes.TrimRight(b.Bytes(), "\n")
}

// encode is v as JSON that keeps <, > and &. v consists of what encoding/json
// decodes into any.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// text reads a JSON string.
func text(value json.RawMessage) (string, bool) {
	var s string
	if len(value) == 0 || value[0] != '"' || json.Unmarshal(value, &s) != nil {
		return "", false
	}
	return s, true
}

// The ways in which a value is not the integer that was asked for.
var (
	errNotNumber  = errors.New("not a number")
	errNotInteger = errors.New("not an integer")
	errTooLarge   = errors.New("too large")
)

// integer reads a JSON number that is an integer, in whatever way it is
// written: 1e3 and 1000.0 are 1000. A number beyond 18 digits is errTooLarge
// with the sign in the result.
func integer(value json.RawMessage) (int64, error) {
	lit := string(value)
	if lit == "" || (lit[0] != '-' && (lit[0] < '0' || lit[0] > '9')) {
		return 0, errNotNumber
	}
	sign := int64(1)
	if lit[0] == '-' {
		sign, lit = -1, lit[1:]
	}
	mantissa, exponent, _ := strings.Cut(strings.ToLower(lit), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := whole + fraction
	if strings.Trim(digits, "0") == "" {
		return 0, nil
	}
	shift := 0
	if exponent != "" {
		n, err := strconv.Atoi(exponent)
		switch {
		case err != nil && exponent[0] == '-', n < -1000:
			return 0, errNotInteger
		case err != nil, n > 1000:
			return sign, errTooLarge
		}
		shift = n
	}
	point := len(whole) + shift // digits before the decimal point
	rest := ""
	switch {
	case point < 0:
		return 0, errNotInteger
	case point < len(digits):
		digits, rest = digits[:point], digits[point:]
	default:
		digits += strings.Repeat("0", point-len(digits))
	}
	if strings.Trim(rest, "0") != "" {
		return 0, errNotInteger
	}
	digits = strings.TrimLeft(digits, "0")
	if len(digits) > 18 {
		return sign, errTooLarge
	}
	n, err := strconv.ParseInt("0"+digits, 10, 64)
	if err != nil {
		return 0, errNotNumber
	}
	return sign * n, nil
}

// decodeStrict reads exactly one JSON value into v; numbers stay texts.
func decodeStrict(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(v); err != nil {
		return errNotJSON
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errNotJSON
	}
	return nil
}
