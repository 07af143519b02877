package data

import (
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/storage"
)

// normalize turns a value that a writer gave, other than nil, into the one
// form in which records hold it. A nil answer without an error means that the
// value stands for null: an empty text in a field that is no text.
func normalize(c *column, v any, now time.Time) (any, *FieldError) {
	if s, ok := v.(string); ok {
		if !storable(s) {
			return nil, fail(c, "invalid_format", "must be valid UTF-8 text without NUL characters")
		}
		if strings.TrimSpace(s) == "" && !c.Type.IsText() && c.kind != kindJSON {
			return nil, nil
		}
	}
	switch c.kind {
	case kindList:
		return normalizeList(c, v)
	case kindJSON:
		return normalizeJSON(c, v)
	case kindDecimal:
		return normalizeNumber(c, v)
	case kindBool:
		return normalizeBool(c, v)
	case kindInstant:
		return normalizeInstant(c, v, now)
	case kindDate, kindClock:
		return normalizeCalendar(c, v, now)
	default:
		return normalizeText(c, v)
	}
}

// fail describes what is wrong with a field's value.
func fail(c *column, code, message string) *FieldError {
	label := c.DisplayLabel()
	return &FieldError{Field: c.Name, Code: code, Message: label + " " + message, Label: label}
}

// failWith adds the bound that was broken.
func failWith(c *column, code, message string, constraint map[string]any) *FieldError {
	f := fail(c, code, message)
	f.Constraint = constraint
	return f
}

// storable reports whether both databases can hold a text.
func storable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

var (
	emailPattern = regexp.MustCompile(`^[^\s@<>(),;:"]+@[^\s@<>(),;:"]+\.[^\s@<>(),;:".]+$`)
	phonePattern = regexp.MustCompile(`^\+?[0-9][0-9 ()./-]{1,30}([ ,;]*(x|ext\.?)[ ]?[0-9]{1,8})?$|^\([0-9][0-9 ()./-]{1,30}$`)
)

// normalizeText checks texts of every kind. An empty text is a value of its own;
// required is what refuses it.
func normalizeText(c *column, v any) (any, *FieldError) {
	s, ok := v.(string)
	if !ok {
		return nil, fail(c, "invalid_type", "must be text")
	}
	if c.Type.HasOptions() {
		return normalizeOption(c, s)
	}
	if failed := checkLength(c, s); failed != nil {
		return nil, failed
	}
	if s == "" {
		return s, nil
	}
	switch c.Type {
	case object.Email:
		if len(s) > 320 || !emailPattern.MatchString(s) {
			return nil, fail(c, "invalid_email", "must be a valid email address")
		}
	case object.URL:
		u, err := url.Parse(s)
		if err != nil || u.Scheme == "" || u.Host == "" || strings.ContainsAny(s, " \t\r\n") {
			return nil, fail(c, "invalid_url", "must be a valid URL")
		}
	case object.Phone:
		if !phonePattern.MatchString(s) {
			return nil, fail(c, "invalid_phone", "must be a valid phone number")
		}
	}
	return s, nil
}

// checkLength counts characters, not bytes or UTF-16 units; only the bound of
// indexed texts is in bytes.
func checkLength(c *column, s string) *FieldError {
	if c.maxBytes > 0 && len(s) > c.maxBytes {
		return failWith(c, "max_length", fmt.Sprintf("must be ≤ %d bytes, because it is indexed (got %d)", c.maxBytes, len(s)),
			map[string]any{"maxBytes": c.maxBytes, "actual": len(s)})
	}
	if c.MaxLength == nil && c.MinLength == nil {
		return nil
	}
	n := utf8.RuneCountInString(s)
	switch {
	case c.MaxLength != nil && n > *c.MaxLength:
		return failWith(c, "max_length", fmt.Sprintf("must be ≤ %d characters (got %d)", *c.MaxLength, n),
			map[string]any{"maxLength": *c.MaxLength, "actual": n})
	case c.MinLength != nil && n < *c.MinLength:
		return failWith(c, "min_length", fmt.Sprintf("must be ≥ %d characters (got %d)", *c.MinLength, n),
			map[string]any{"minLength": *c.MinLength, "actual": n})
	}
	return nil
}

// option finds the option's value that s spells, in any letter case when only
// the case differs.
func option(f *object.Field, s string) (string, bool) {
	for _, o := range f.Options {
		if o.Value == s {
			return s, true
		}
	}
	for _, o := range f.Options {
		if strings.EqualFold(o.Value, strings.TrimSpace(s)) {
			return o.Value, true
		}
	}
	return "", false
}

// normalizeOption is a single choice.
func normalizeOption(c *column, s string) (any, *FieldError) {
	if value, ok := option(c.Field, s); ok {
		return value, nil
	}
	allowed := optionValues(c.Field)
	f := failWith(c, "invalid_option", "must be one of: "+strings.Join(allowed, ", "), map[string]any{"allowed": strings.Join(allowed, ", ")})
	f.Options = allowed
	return nil, f
}

// normalizeList takes an array, a JSON text of one, or values with commas in
// between. Values that come again are dropped.
func normalizeList(c *column, v any) (any, *FieldError) {
	items, ok := listItems(v)
	if !ok {
		return nil, fail(c, "invalid_type", "must be a list of texts")
	}
	out := []any{}
	for _, s := range items {
		if !storable(s) {
			return nil, fail(c, "invalid_format", "must be valid UTF-8 text without NUL characters")
		}
		if len(c.Options) > 0 {
			value, ok := option(c.Field, s)
			if !ok {
				return nil, badOption(c, s)
			}
			s = value
		}
		if s != "" && !slices.Contains(out, any(s)) {
			out = append(out, s)
		}
	}
	return out, nil
}

// badOption names the value, since a list may hold several.
func badOption(c *column, value string) *FieldError {
	allowed := optionValues(c.Field)
	list, label := strings.Join(allowed, ", "), c.DisplayLabel()
	return &FieldError{
		Field: c.Name, Code: "invalid_option", Label: label, Value: value, Options: allowed,
		Message:    fmt.Sprintf("%s: %q is not one of: %s", label, value, list),
		Constraint: map[string]any{"allowed": list},
	}
}

// listItems reads the spellings of a list. A JSON text that is no array of texts
// falls back to being split at commas.
func listItems(v any) ([]string, bool) {
	switch v := v.(type) {
	case []string:
		return v, true
	case []any:
		items := make([]string, len(v))
		for i, item := range v {
			s, ok := item.(string)
			if !ok {
				return nil, false
			}
			items[i] = s
		}
		return items, true
	case string:
		text := strings.TrimSpace(v)
		if strings.HasPrefix(text, "[") {
			if value, err := DecodeJSON([]byte(text)); err == nil {
				return listItems(value)
			}
		}
		items := strings.Split(text, ",")
		for i := range items {
			items[i] = strings.TrimSpace(items[i])
		}
		return slices.DeleteFunc(items, func(s string) bool { return s == "" }), true
	default:
		return nil, false
	}
}

// normalizeJSON passes values through JSON once, so that records hold plain JSON
// values whatever Go types the writer gave. Numbers keep their digits.
func normalizeJSON(c *column, v any) (any, *FieldError) {
	text, err := encodeJSON(v)
	if err != nil {
		return nil, fail(c, "invalid_json", "must be valid JSON")
	}
	value, err := DecodeJSON(text)
	if err != nil || !storableJSON(value) {
		return nil, fail(c, "invalid_json", "must be valid JSON without NUL characters")
	}
	if operators(value) {
		return nil, fail(c, "invalid_value", "must be a value, not a filter operator")
	}
	if c.Type == object.JSON {
		return value, nil
	}
	if s, ok := value.(string); ok {
		if value, err = DecodeJSON([]byte(s)); err != nil {
			return nil, fail(c, "invalid_json", "must be valid JSON")
		}
	}
	if _, ok := value.(map[string]any); !ok {
		return nil, fail(c, "invalid_type", "must be an object")
	}
	return value, nil
}

// storableJSON is storable for every text inside a JSON value.
func storableJSON(v any) bool {
	switch v := v.(type) {
	case string:
		return storable(v)
	case []any:
		return !slices.ContainsFunc(v, func(item any) bool { return !storableJSON(item) })
	case map[string]any:
		for key, item := range v {
			if !storable(key) || !storableJSON(item) {
				return false
			}
		}
	}
	return true
}

// operators reports whether v looks like {"$gt": 1}: a filter where a value
// should stand.
func operators(v any) bool {
	m, ok := v.(map[string]any)
	if !ok {
		return false
	}
	for key := range m {
		if _, known := operatorNames[key]; known || key == "$field" {
			return true
		}
	}
	return false
}

// numberText is the decimal text of a number or of a text that spells one.
func numberText(v any) (string, bool) {
	switch v := v.(type) {
	case json.Number:
		return v.String(), true
	case string:
		return strings.TrimSpace(v), true
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), true
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32), true
	}
	r := reflect.ValueOf(v)
	switch {
	case !r.IsValid():
		return "", false
	case r.CanInt():
		return strconv.FormatInt(r.Int(), 10), true
	case r.CanUint():
		return strconv.FormatUint(r.Uint(), 10), true
	}
	return "", false
}

// canonicalNumber is the one form of a number, with at most 38 digits.
func canonicalNumber(v any) (json.Number, bool) {
	text, ok := numberText(v)
	if !ok {
		return "", false
	}
	canonical, err := storage.CanonicalDecimal(text)
	return json.Number(canonical), err == nil
}

// normalizeNumber makes a number canonical and checks its bounds, in decimal
// arithmetic all the way: no float is involved.
func normalizeNumber(c *column, v any) (any, *FieldError) {
	n, ok := canonicalNumber(v)
	if !ok {
		return nil, fail(c, "invalid_number", "must be a number")
	}
	digits := strings.TrimPrefix(n.String(), "-")
	whole, fraction, _ := strings.Cut(digits, ".")
	switch {
	case c.Min != "" && compareNumbers(n, c.Min) < 0:
		return nil, failWith(c, "min_value", "must be ≥ "+c.Min.String(), map[string]any{"min": c.Min})
	case c.Max != "" && compareNumbers(n, c.Max) > 0:
		return nil, failWith(c, "max_value", "must be ≤ "+c.Max.String(), map[string]any{"max": c.Max})
	case c.Scale != nil && len(fraction) > *c.Scale:
		return nil, failWith(c, "max_scale", fmt.Sprintf("must have at most %d decimals", *c.Scale), map[string]any{"scale": *c.Scale})
	case c.Precision != nil && len(strings.TrimLeft(whole, "0"))+len(fraction) > *c.Precision:
		return nil, failWith(c, "invalid_number", fmt.Sprintf("must have at most %d digits", *c.Precision), map[string]any{"precision": *c.Precision})
	case c.integer && fraction != "":
		return nil, fail(c, "invalid_number", "must be a whole number")
	}
	if c.integer {
		if _, err := strconv.ParseInt(n.String(), 10, 64); err != nil {
			return nil, fail(c, "invalid_number", "must be a whole number of 64 bits")
		}
	}
	return n, nil
}

// compareNumbers compares two numbers by value. A bound of a definition may be
// spelled with an exponent.
func compareNumbers(a, b json.Number) int {
	if canonical, ok := canonicalNumber(b); ok {
		b = canonical
	}
	return storage.CompareDecimal(a.String(), b.String())
}

// normalizeBool takes the spellings of query strings and forms as well, but
// never guesses: "no" is refused instead of being true.
func normalizeBool(c *column, v any) (any, *FieldError) {
	switch v := v.(type) {
	case bool:
		return v, nil
	case string:
		switch strings.ToLower(strings.TrimSpace(v)) {
		case "true", "1":
			return true, nil
		case "false", "0":
			return false, nil
		}
	default:
		switch text, _ := numberText(v); text {
		case "1":
			return true, nil
		case "0":
			return false, nil
		}
	}
	return nil, fail(c, "invalid_boolean", "must be true or false")
}

// nowToken stands for the time of the write in values and defaults.
const nowToken = "NOW()"

// normalizeInstant brings times into UTC with whole milliseconds.
func normalizeInstant(c *column, v any, now time.Time) (any, *FieldError) {
	ms, ok := instant(v, now)
	if !ok {
		return nil, fail(c, "invalid_date", "must be a valid date and time")
	}
	return apiInstant(c, ms), nil
}

// apiInstant is how the API shows an instant.
func apiInstant(c *column, ms int64) any {
	if c.Format == object.FormatEpochMillis {
		return json.Number(strconv.FormatInt(ms, 10))
	}
	return event.FormatTime(time.UnixMilli(ms))
}

// The years that four digits can write.
var (
	firstInstant = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	lastInstant  = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() - 1
)

// lostPlus is an offset whose plus sign a query string turned into a space.
var lostPlus = regexp.MustCompile(`(\d) (\d\d:\d\d)$`)

// instant reads ISO text, epoch milliseconds or a time.Time.
func instant(v any, now time.Time) (int64, bool) {
	var at time.Time
	switch v := v.(type) {
	case time.Time:
		at = v
	case string:
		text := strings.TrimSpace(v)
		if text == nowToken {
			return now.UnixMilli(), true
		}
		parsed, ok := parseTime(text)
		if !ok {
			ms, err := strconv.ParseInt(text, 10, 64)
			return ms, err == nil && ms >= firstInstant && ms <= lastInstant
		}
		at = parsed
	default:
		n, ok := canonicalNumber(v)
		if !ok {
			return 0, false
		}
		ms, err := strconv.ParseInt(n.String(), 10, 64)
		return ms, err == nil && ms >= firstInstant && ms <= lastInstant
	}
	ms := at.UnixMilli()
	return ms, ms >= firstInstant && ms <= lastInstant
}

// parseTime reads ISO 8601. A time without an offset is UTC, a date alone its
// first instant.
func parseTime(text string) (time.Time, bool) {
	if strings.Contains(text, "T") {
		text = lostPlus.ReplaceAllString(text, "$1+$2")
	}
	for _, layout := range []string{
		time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05", "2006-01-02",
	} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// normalizeCalendar reads dates and times of day. An instant stands for its
// date, or its time, in UTC.
func normalizeCalendar(c *column, v any, now time.Time) (any, *FieldError) {
	code, what := "invalid_date", "must be a valid date"
	if c.kind == kindClock {
		code, what = "invalid_time", "must be a valid time"
	}
	var at time.Time
	switch v := v.(type) {
	case time.Time:
		at = v
	case string:
		text := strings.TrimSpace(v)
		parsed, ok := parseTime(text)
		switch {
		case text == nowToken:
			at = now
		case ok && (c.kind == kindDate || strings.ContainsAny(text, "T ")):
			at = parsed
		case c.kind == kindClock:
			if at, ok = parseClock(text); !ok {
				return nil, fail(c, code, what)
			}
		default:
			return nil, fail(c, code, what)
		}
	default:
		return nil, fail(c, code, what)
	}
	if at = at.UTC(); at.Year() < 0 || at.Year() > 9999 {
		return nil, fail(c, code, what)
	}
	if c.kind == kindDate {
		return at.Format(time.DateOnly), nil
	}
	return formatClock(at), nil
}

// parseClock reads a time of day.
func parseClock(text string) (time.Time, bool) {
	for _, layout := range []string{"15:04:05", "15:04"} { // a fraction is read after the seconds
		if at, err := time.Parse(layout, text); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// formatClock leaves out milliseconds of zero; texts of both lengths sort by
// time.
func formatClock(at time.Time) string {
	if at.Nanosecond() < int(time.Millisecond) {
		return at.Format(time.TimeOnly)
	}
	return at.Format("15:04:05.000")
}
