package storage

import (
	"cmp"
	"errors"
	"strings"
)

// ErrInvalidDecimal is returned for text that is no number, or one out of the
// bounds of [CanonicalDecimal].
var ErrInvalidDecimal = errors.New("storage: not a number with at most 38 digits")

// maxDigits bounds a decimal: significant digits, digits before and digits
// after the point alike.
const maxDigits = 38

// CanonicalDecimal returns the one spelling of a decimal number: plain
// notation, no plus sign, no leading zeros but the one before the point, no
// trailing zeros after it, no negative zero. It takes what both JSON and SQL
// spell as a number: 1, +1, 007, 1.50, .5, 1., 1.5e3.
//
// Numbers with more than 38 significant digits, 1e38 and above in magnitude,
// or with more than 38 digits after the point give ErrInvalidDecimal, as does
// any other text. No digit is ever rounded away.
func CanonicalDecimal(text string) (string, error) {
	negative, digits, exponent, ok := scanDecimal(text)
	if !ok {
		return "", ErrInvalidDecimal
	}
	trimmed := strings.TrimRight(digits, "0")
	exponent += len(digits) - len(trimmed)
	digits = strings.TrimLeft(trimmed, "0")
	if digits == "" {
		return "0", nil
	}
	// The number is digits × 10^exponent and digits has no zeros at its ends.
	whole := len(digits) + exponent
	if len(digits) > maxDigits || whole > maxDigits || -exponent > maxDigits {
		return "", ErrInvalidDecimal
	}
	var b strings.Builder
	if negative {
		b.WriteByte('-')
	}
	switch {
	case exponent >= 0:
		b.WriteString(digits)
		b.WriteString(strings.Repeat("0", exponent))
	case whole > 0:
		b.WriteString(digits[:whole])
		b.WriteByte('.')
		b.WriteString(digits[whole:])
	default:
		b.WriteString("0.")
		b.WriteString(strings.Repeat("0", -whole))
		b.WriteString(digits)
	}
	return b.String(), nil
}

// scanDecimal reads [+-] digits [. digits] [e [+-] digits], with at least one
// digit before or after the point, as digits × 10^exponent.
func scanDecimal(text string) (negative bool, digits string, exponent int, ok bool) {
	negative, rest := cutSign(text)
	whole := leadingDigits(rest)
	rest = rest[len(whole):]
	var fraction string
	if strings.HasPrefix(rest, ".") {
		fraction = leadingDigits(rest[1:])
		rest = rest[1+len(fraction):]
	}
	if whole == "" && fraction == "" {
		return false, "", 0, false
	}
	if rest != "" {
		if rest[0] != 'e' && rest[0] != 'E' {
			return false, "", 0, false
		}
		down, power := cutSign(rest[1:])
		if power == "" || leadingDigits(power) != power {
			return false, "", 0, false
		}
		exponent = smallInt(power)
		if down {
			exponent = -exponent
		}
	}
	return negative, whole + fraction, exponent - len(fraction), true
}

// smallInt reads digits; from a billion on it gives a billion, which is out of
// bounds with any number of digits that fits into memory.
func smallInt(digits string) int {
	n := 0
	for i := range len(digits) {
		n = min(n*10+int(digits[i]-'0'), 1_000_000_000)
	}
	return n
}

func cutSign(text string) (negative bool, rest string) {
	if text != "" && (text[0] == '-' || text[0] == '+') {
		return text[0] == '-', text[1:]
	}
	return false, text
}

func leadingDigits(text string) string {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return text[:i]
		}
	}
	return text
}

// CompareDecimal orders texts as SQLite's collation "decimal" does: numbers in
// plain notation by value, before every other text; other texts by their bytes.
// Numbers of the same value compare as equal, however they are spelled, with
// any number of digits. It is a total order.
func CompareDecimal(a, b string) int {
	x, xok := parsePlain(a)
	y, yok := parsePlain(b)
	switch {
	case !xok && !yok:
		return strings.Compare(a, b)
	case !xok:
		return 1
	case !yok:
		return -1
	case x.sign != y.sign:
		return cmp.Compare(x.sign, y.sign)
	}
	c := cmp.Or(
		cmp.Compare(len(x.whole), len(y.whole)),
		strings.Compare(x.whole, y.whole),
		strings.Compare(x.fraction, y.fraction), // without trailing zeros a prefix is smaller
	)
	return c * x.sign
}

// plain is a number without leading zeros in whole and without trailing ones
// in fraction; its sign is 0 for zero.
type plain struct {
	sign            int
	whole, fraction string
}

func parsePlain(text string) (plain, bool) {
	negative, rest := cutSign(text)
	whole := leadingDigits(rest)
	rest = rest[len(whole):]
	fraction := ""
	if strings.HasPrefix(rest, ".") {
		fraction = leadingDigits(rest[1:])
		rest = rest[1+len(fraction):]
	}
	if rest != "" || (whole == "" && fraction == "") {
		return plain{}, false
	}
	p := plain{
		sign:     1,
		whole:    strings.TrimLeft(whole, "0"),
		fraction: strings.TrimRight(fraction, "0"),
	}
	if p.whole == "" && p.fraction == "" {
		p.sign = 0
	} else if negative {
		p.sign = -1
	}
	return p, true
}
