package automation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/apd/v3"

	"github.com/objecthost/objecthost/core/event"
)

// scope is what templates see of a run.
type scope interface {
	// path resolves the names of a path; ok is false when there is no such
	// value.
	path(names []string) (value any, ok bool)
	// now is the clock.
	now() time.Time
}

// arithmetic keeps 38 digits, as the data engine does.
var arithmetic = apd.BaseContext.WithPrecision(38)

// interpolate replaces the templates in a JSON value, keys of objects
// excepted. missing, when not nil, hears of tokens that resolve to nothing.
func interpolate(value any, s scope, missing func(token string)) (any, error) {
	switch v := value.(type) {
	case string:
		return interpolateText(v, s, missing)
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			var err error
			if out[i], err = interpolate(item, s, missing); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, item := range v {
			var err error
			if out[key], err = interpolate(item, s, missing); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return value, nil
}

func interpolateText(source string, s scope, missing func(string)) (any, error) {
	if !strings.Contains(source, "{") {
		return source, nil
	}
	t := parseTemplate(source)
	if len(t.parts) == 1 && t.parts[0].token != nil {
		return t.parts[0].token.eval(s, missing)
	}
	var out strings.Builder
	for _, part := range t.parts {
		if part.token == nil {
			out.WriteString(part.text)
			continue
		}
		value, err := part.token.eval(s, missing)
		if err != nil {
			return nil, err
		}
		out.WriteString(textOf(value))
		if out.Len() > maxTemplateLength {
			break
		}
	}
	if err := checkText(out.String()); err != nil {
		return nil, err
	}
	return out.String(), nil
}

// eval returns the token's value, nil for a path that leads nowhere.
func (t *token) eval(s scope, missing func(string)) (any, error) {
	if t.path != nil {
		value, ok := s.path(t.path)
		if ok {
			if value == nil && missing != nil {
				missing(t.source)
			}
			return value, nil
		}
		if t.root == nil || t.root.kind == 'p' {
			if missing != nil {
				missing(t.source)
			}
			return nil, nil
		}
	}
	value, err := t.root.eval(s)
	if err != nil {
		return nil, &TemplateError{t.source, err.Error()}
	}
	if value == nil && missing != nil {
		missing(t.source)
	}
	return value, nil
}

func (n *templateNode) eval(s scope) (any, error) {
	switch n.kind {
	case '0':
		return json.Number(n.text), nil
	case 'p':
		value, _ := s.path(n.path)
		return value, nil
	case 'c':
		if n.text == "NOW" {
			return event.FormatTime(s.now()), nil
		}
		return s.now().UTC().Format(time.DateOnly), nil
	case '_':
		operand, err := n.left.eval(s)
		if err != nil {
			return nil, err
		}
		return calculate('-', json.Number("0"), operand)
	}
	left, err := n.left.eval(s)
	if err != nil {
		return nil, err
	}
	right, err := n.right.eval(s)
	if err != nil {
		return nil, err
	}
	return calculate(n.kind, left, right)
}

// calculate does decimal arithmetic, moves dates by days and times by
// milliseconds, and joins texts with +.
func calculate(operator byte, left, right any) (any, error) {
	a, aIsNumber := decimalOf(left)
	b, bIsNumber := decimalOf(right)
	if aIsNumber && bIsNumber {
		return decimal(operator, a, b)
	}
	if text, ok := left.(string); ok && bIsNumber && (operator == '+' || operator == '-') {
		if moved, ok := move(text, operator, b); ok {
			return moved, nil
		}
	}
	_, leftIsText := left.(string)
	_, rightIsText := right.(string)
	if operator == '+' && (leftIsText || rightIsText) {
		return textOf(left) + textOf(right), nil
	}
	return nil, fmt.Errorf("%c does not apply to %s and %s", operator, kindOf(left), kindOf(right))
}

// move adds days to a date and milliseconds to a time.
func move(text string, operator byte, by *apd.Decimal) (string, bool) {
	n, err := by.Int64()
	if err != nil || n > 1e15 || n < -1e15 {
		return "", false
	}
	if operator == '-' {
		n = -n
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil && n < 1e7 && n > -1e7 {
		return day.AddDate(0, 0, int(n)).Format(time.DateOnly), true
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil && strings.Contains(text, "T") {
		return event.FormatTime(at.Add(time.Duration(n) * time.Millisecond)), n < 9e12 && n > -9e12
	}
	return "", false
}

func decimal(operator byte, a, b *apd.Decimal) (any, error) {
	var out apd.Decimal
	var err error
	switch operator {
	case '+':
		_, err = arithmetic.Add(&out, a, b)
	case '-':
		_, err = arithmetic.Sub(&out, a, b)
	case '*':
		_, err = arithmetic.Mul(&out, a, b)
	case '/':
		if b.IsZero() {
			return nil, fmt.Errorf("division by zero")
		}
		_, err = arithmetic.Quo(&out, a, b)
	case '%':
		if b.IsZero() {
			return nil, fmt.Errorf("division by zero")
		}
		_, err = arithmetic.Rem(&out, a, b)
	}
	if err != nil {
		return nil, err
	}
	if exponent := int(out.Exponent) + int(out.NumDigits()); exponent > 60 || out.Exponent < -60 {
		return nil, fmt.Errorf("the result is out of range")
	}
	if operator == '/' {
		out.Reduce(&out)
	}
	if out.IsZero() {
		out.Negative = false
	}
	return json.Number(out.Text('f')), nil
}

// decimalOf reads numbers only: texts that look like numbers stay texts.
func decimalOf(value any) (*apd.Decimal, bool) {
	number, ok := value.(json.Number)
	if !ok || len(number) > 100 {
		return nil, false
	}
	d, _, err := apd.NewFromString(number.String())
	if err != nil || d.Form != apd.Finite || d.Exponent > 100 || d.Exponent < -100 {
		return nil, false
	}
	return d, true
}

// textOf is a value inside a longer text: null is empty, numbers keep their
// digits, lists and objects are JSON.
func textOf(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	text, err := encodeJSON(value)
	if err != nil {
		return ""
	}
	return string(text)
}

// encodeJSON writes JSON without escaping <, > and &, and without a line end.
func encodeJSON(value any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimRight(out.Bytes(), "\n"), nil
}

// decodeJSON reads one JSON value and keeps the digits of numbers.
func decodeJSON(text []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if dec.More() {
		return fmt.Errorf("there is something after the value")
	}
	return nil
}

// legacyCondition is a condition written as a template: {a} == open. Both
// sides are filled in as texts; numbers compare as numbers. The operator stands
// in the author's own text, never in a value. Without an operator the value
// itself decides: empty, false, 0, null and undefined are false.
func legacyCondition(source string, s scope) (bool, error) {
	if left, operator, right, found := splitComparison(source); found {
		a, err := interpolateText(left, s, nil)
		if err != nil {
			return false, err
		}
		b, err := interpolateText(right, s, nil)
		if err != nil {
			return false, err
		}
		return compareTexts(bare(textOf(a)), operator, bare(textOf(b))), nil
	}
	value, err := interpolateText(source, s, nil)
	if err != nil {
		return false, err
	}
	switch strings.TrimSpace(textOf(value)) {
	case "", "false", "0", "null", "undefined":
		return false, nil
	}
	return true, nil
}

// splitComparison cuts a template at the first operator outside of its tokens.
func splitComparison(source string) (left, operator, right string, found bool) {
	offset := 0
	for _, part := range parseTemplate(source).parts {
		if part.token != nil {
			offset += strings.IndexByte(source[offset:], '}') + 1
			continue
		}
		if at := strings.IndexAny(part.text, "=!<>"); at >= 0 {
			for _, operator := range []string{"===", "!==", "==", "!=", ">=", "<=", ">", "<"} {
				if strings.HasPrefix(part.text[at:], operator) {
					return source[:offset+at], operator, source[offset+at+len(operator):], true
				}
			}
		}
		offset += len(part.text)
	}
	return "", "", "", false
}

// bare trims a side of a comparison and takes off its quotes.
func bare(side string) string {
	side = strings.TrimSpace(side)
	if n := len(side); n >= 2 && side[0] == side[n-1] && (side[0] == '"' || side[0] == '\'') {
		return side[1 : n-1]
	}
	return side
}

func compareTexts(left, operator, right string) bool {
	order := strings.Compare(left, right)
	a, aIsNumber := decimalOf(json.Number(left))
	b, bIsNumber := decimalOf(json.Number(right))
	if aIsNumber && bIsNumber {
		order = a.Cmp(b)
	}
	switch operator {
	case "==", "===":
		return order == 0
	case "!=", "!==":
		return order != 0
	case ">=":
		return order >= 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	}
	return order < 0
}
