package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"
)

// Record holds a record's values by field name: string, bool, json.Number,
// nil, []any and map[string]any. Writers may also give Go numbers, time.Time
// and []string.
type Record = map[string]any

// maxDepth bounds how deep JSON values and filters nest.
const maxDepth = 64

var errTooDeep = fmt.Errorf("nested deeper than %d levels", maxDepth)

// DecodeJSON reads exactly one JSON value and keeps the digits of numbers.
// Text that a store could not hold is refused: invalid UTF-8 and lone UTF-16
// surrogates (which encoding/json would turn into U+FFFD), and so are keys
// that come twice. The error is an *[Error] with CodeInvalidRequest.
func DecodeJSON(data []byte) (any, error) {
	if err := checkText(data); err != nil {
		return nil, badJSON(err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	value, err := decodeValue(dec, 0)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("unexpected end of JSON input")
		}
		return nil, badJSON(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, badJSON(errors.New("there is text after the JSON value"))
	}
	return value, nil
}

// DecodeRecord is [DecodeJSON] for a JSON object.
func DecodeRecord(data []byte) (Record, error) {
	value, err := DecodeJSON(data)
	if err != nil {
		return nil, err
	}
	record, ok := value.(map[string]any)
	if !ok {
		return nil, badJSON(errors.New("a record is a JSON object"))
	}
	return record, nil
}

// badJSON wraps a decoder's complaint; it tells about the text's form and never
// quotes more of it than a key.
func badJSON(err error) *Error {
	return &Error{Code: CodeInvalidRequest, Message: "invalid JSON: " + err.Error(), cause: err}
}

// decodeValue builds the value token by token, because json.Unmarshal lets a
// key come twice and keeps the last.
func decodeValue(dec *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errTooDeep
	}
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return token, nil
	}
	if delim == '[' {
		items := []any{}
		for dec.More() {
			item, err := decodeValue(dec, depth+1)
			if err != nil {
				return nil, err
			}
			items = append(items, item)
		}
		_, err := dec.Token()
		return items, err
	}
	object := map[string]any{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, err
		}
		key, _ := token.(string)
		if _, twice := object[key]; twice {
			return nil, fmt.Errorf("key %q comes twice", key)
		}
		if object[key], err = decodeValue(dec, depth+1); err != nil {
			return nil, err
		}
	}
	_, err = dec.Token()
	return object, err
}

// checkText finds what a JSON text must not hold although encoding/json reads
// it: invalid UTF-8 and \u escapes of half a surrogate pair.
func checkText(data []byte) error {
	if !utf8.Valid(data) {
		return errors.New("the text is not valid UTF-8")
	}
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		i++
		unit, ok := escape(data, i)
		if !ok {
			continue
		}
		i += 4
		switch {
		case unit >= 0xDC00 && unit <= 0xDFFF:
			return fmt.Errorf(`lone surrogate \u%04x`, unit)
		case unit >= 0xD800 && unit <= 0xDBFF:
			low, ok := uint64(0), false
			if i+1 < len(data) && data[i+1] == '\\' {
				low, ok = escape(data, i+2)
			}
			if !ok || low < 0xDC00 || low > 0xDFFF {
				return fmt.Errorf(`lone surrogate \u%04x`, unit)
			}
			i += 6
		}
	}
	return nil
}

// escape reads uXXXX at i.
func escape(data []byte, i int) (uint64, bool) {
	if i+5 > len(data) || data[i] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(data[i+1:i+5]), 16, 32)
	return unit, err == nil
}

// encodeJSON writes v without escaping <, > and &, and without a line end.
// Keys of maps are sorted.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
