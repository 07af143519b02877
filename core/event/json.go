package event

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// AppendJSON appends the envelope to dst. With a non-empty action it is the
// body of a webhook delivery: object, recordId (or matched), action and
// timestamp come last, so that nothing in the payload can stand in for them.
//
// Changes, Before and After are copied byte for byte and must be valid JSON
// (the log refuses others when they are appended). In texts only what JSON
// demands is escaped, plus U+2028 and U+2029; bytes that are not UTF-8 become
// U+FFFD. The error is always nil and stays for callers that pass it on.
func (e *Event) AppendJSON(dst []byte, action string) ([]byte, error) {
	w := writer{buf: append(dst, '{'), first: true}
	w.text("id", e.ID)
	if e.Sequence != 0 {
		w.number("sequence", e.Sequence)
	}
	w.text("type", e.Type)
	if action == "" {
		w.text("object", e.Object)
		w.subject(e)
	}
	w.raw("changes", e.Changes)
	w.raw("before", e.Before)
	w.raw("after", e.After)
	w.optional("userId", e.UserID)
	w.optional("organizationId", e.OrganizationID)
	if action != "" {
		w.text("object", e.Object)
		w.subject(e)
		w.text("action", action)
	}
	w.key("timestamp")
	w.buf = append(w.buf, '"')
	w.buf = e.Timestamp.UTC().AppendFormat(w.buf, TimeLayout)
	return append(w.buf, '"', '}'), nil
}

// MarshalJSON writes the envelope as AppendJSON does without an action. Note
// that [json.Marshal] rewrites what a Marshaler returns (it escapes <, > and
// &); callers that need the exact bytes call AppendJSON.
func (e *Event) MarshalJSON() ([]byte, error) { return e.AppendJSON(nil, "") }

var _ json.Marshaler = (*Event)(nil)

// writer appends the members of one JSON object.
type writer struct {
	buf   []byte
	first bool
}

func (w *writer) key(name string) {
	if !w.first {
		w.buf = append(w.buf, ',')
	}
	w.first = false
	w.buf = append(w.buf, '"')
	w.buf = append(w.buf, name...)
	w.buf = append(w.buf, '"', ':')
}

func (w *writer) raw(name string, value []byte) {
	if len(value) == 0 {
		return
	}
	w.key(name)
	w.buf = append(w.buf, value...)
}

func (w *writer) number(name string, value int64) {
	w.key(name)
	w.buf = strconv.AppendInt(w.buf, value, 10)
}

func (w *writer) text(name, value string) {
	w.key(name)
	w.buf = appendText(w.buf, value)
}

func (w *writer) optional(name, value string) {
	if value != "" {
		w.text(name, value)
	}
}

func (w *writer) subject(e *Event) {
	switch {
	case e.RecordID != "":
		w.text("recordId", e.RecordID)
	case e.Matched != 0:
		w.number("matched", e.Matched)
	}
}

const hex = "0123456789abcdef"

// appendText appends s as a JSON string, byte for byte what a json.Encoder
// with SetEscapeHTML(false) writes (a fuzz test compares the two), without its
// reflection and its buffer.
func appendText(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		b := s[i]
		if b < utf8.RuneSelf {
			if b >= 0x20 && b != '"' && b != '\\' {
				i++
				continue
			}
			dst = append(dst, s[start:i]...)
			dst = appendEscape(dst, b)
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			dst = append(dst, s[start:i]...)
			dst = append(dst, `\ufffd`...)
			start = i + size
		case r == '\u2028' || r == '\u2029':
			// Valid in JSON but line ends in older JavaScript.
			dst = append(dst, s[start:i]...)
			dst = append(dst, `\u202`...)
			dst = append(dst, hex[r&0xf])
			start = i + size
		}
		i += size
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

func appendEscape(dst []byte, b byte) []byte {
	switch b {
	case '"', '\\':
		return append(dst, '\\', b)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hex[b>>4], hex[b&0xf])
}
