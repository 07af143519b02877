package data

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/objecthost/objecthost/core/object"
)

// builder writes a statement for one dialect and collects its arguments in
// the order of their placeholders.
type builder struct {
	strings.Builder
	args     []any
	postgres bool
}

// text appends SQL. Nothing that a caller wrote may pass through it other than
// names of defined fields.
func (b *builder) text(parts ...string) {
	for _, part := range parts {
		b.WriteString(part)
	}
}

// arg writes a placeholder with the type that the column kind has.
func (b *builder) arg(k kind, v any) {
	b.args = append(b.args, v)
	if !b.postgres {
		b.WriteByte('?')
		return
	}
	b.text("$", strconv.Itoa(len(b.args)), "::", castOf(k))
}

// castOf names the parameter's type for PostgreSQL, which would take every text
// parameter for text.
func castOf(k kind) string {
	switch k {
	case kindDecimal:
		return "numeric"
	case kindBool:
		return "boolean"
	case kindInstant:
		return "bigint"
	default:
		return "text"
	}
}

// where writes a compiled filter.
func (b *builder) where(p predicate) {
	switch p := p.(type) {
	case constant:
		if p {
			b.text("1=1")
		} else {
			b.text("1=0")
		}
	case *group:
		b.WriteByte('(')
		for i, part := range p.parts {
			switch {
			case i == 0:
			case p.or:
				b.text(" OR ")
			default:
				b.text(" AND ")
			}
			b.where(part)
		}
		b.WriteByte(')')
	case *leaf:
		b.leaf(p)
	case *within:
		b.within(p)
	case *pair:
		b.pair(p)
	}
}

// leaf writes a test in two-valued logic: a negated one says in words that null
// counts.
func (b *builder) leaf(l *leaf) {
	name := quote(l.column.Name)
	if l.test == testNull {
		if l.aside && !b.postgres {
			b.text("+")
		}
		b.text(name, " IS ")
		if l.negate {
			b.text("NOT ")
		}
		b.text("NULL")
		return
	}
	if !l.negate {
		if meanings := l.meanings(); meanings != nil {
			b.text("(", strings.Join(meanings, " OR "), ")")
			return
		}
		b.test(l, name)
		return
	}
	b.text("(", name, " IS NULL OR ")
	if l.other != nil {
		b.text(quote(l.other.Name), " IS NULL OR ")
	}
	b.text("NOT (")
	b.test(l, name)
	b.text("))")
}

// meanings are the conditions that stand for the values of an equality, nil when
// one of them has none.
func (l *leaf) meanings() []string {
	values := l.values
	switch {
	case l.test == testEq && l.other == nil:
		values = []any{l.value}
	case l.test != testIn:
		return nil
	}
	var out []string
	for _, value := range values {
		at := slices.IndexFunc(l.column.Options, func(o object.Option) bool { return o.Value == value })
		if at < 0 || l.column.Options[at].Means == "" {
			return nil
		}
		out = append(out, l.column.Options[at].Means)
	}
	return out
}

// test writes the condition that is null or false for a null field.
func (b *builder) test(l *leaf, name string) {
	switch l.test {
	case testIn:
		b.text(name, " IN (")
		for i, value := range l.values {
			if i > 0 {
				b.text(",")
			}
			b.operand(l.column, value)
		}
		b.text(")")
	case testHas:
		b.has(l.column, l.values)
	case testContains:
		b.position(name, l.value)
	case testIContains:
		b.position(b.folded(name), l.value)
	case testStarts:
		b.starts(name, l.value.(string))
	case testEnds:
		b.ends(name, l.value.(string))
	case testLike:
		b.like(name, l.like)
	case testILike:
		b.like(b.folded(name), l.like)
	default:
		b.text(name, " ", string(l.test), " ")
		if l.other != nil {
			b.text(quote(l.other.Name))
			return
		}
		b.operand(l.column, l.value)
	}
}

// operand writes a comparison's value as its column keeps it.
func (b *builder) operand(c *column, value any) {
	if n, ok := value.(json.Number); ok {
		if c.integer {
			if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
				b.arg(kindInstant, i)
				return
			}
			if !b.postgres {
				f, _ := strconv.ParseFloat(n.String(), 64)
				b.arg(kindDecimal, f)
				return
			}
		}
		b.arg(kindDecimal, n.String())
		return
	}
	if flag, ok := value.(bool); ok && !b.postgres {
		b.arg(kindBool, boolInt(flag))
		return
	}
	b.arg(c.kind, value)
}

// boolInt is how SQLite keeps booleans.
func boolInt(flag bool) int64 {
	if flag {
		return 1
	}
	return 0
}

// position finds a text literally: no pattern, no escaping.
func (b *builder) position(name string, needle any) {
	if b.postgres {
		b.text("strpos(", name, ", ")
	} else {
		b.text("instr(", name, ", ")
	}
	b.arg(kindText, needle)
	b.text(") > 0")
}

// folded lowers A to Z only: SQLite's lower does that, and PostgreSQL's under
// the C collation.
func (b *builder) folded(name string) string {
	if b.postgres {
		return "lower(" + name + ` COLLATE "C")`
	}
	return "lower(" + name + ")"
}

// starts is a range, so that an index serves it.
func (b *builder) starts(name, prefix string) {
	b.text(name, " >= ")
	b.arg(kindText, prefix)
	if after, ok := successor(prefix); ok {
		b.text(" AND ", name, " < ")
		b.arg(kindText, after)
	}
}

// successor is the least text above every text that begins with prefix, in
// code point order, which is also the order of UTF-8 bytes.
func successor(prefix string) (string, bool) {
	for prefix != "" {
		last, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		switch {
		case last == utf8.MaxRune:
			continue
		case last == 0xD7FF:
			last = 0xE000
		default:
			last++
		}
		return prefix + string(last), true
	}
	return "", false
}

// ends compares the last characters. A text shorter than the suffix is compared
// as a whole and differs.
func (b *builder) ends(name, suffix string) {
	if suffix == "" {
		b.text(name, " IS NOT NULL")
		return
	}
	n := strconv.Itoa(utf8.RuneCountInString(suffix))
	if b.postgres {
		b.text("right(", name, ", ", n, ") = ")
	} else {
		b.text("substr(", name, ", -", n, ") = ")
	}
	b.arg(kindText, suffix)
}

// like writes a pattern: LIKE on PostgreSQL, GLOB on SQLite, whose LIKE
// ignores letter case.
func (b *builder) like(name string, parts []likePart) {
	var p strings.Builder
	for _, part := range parts {
		switch {
		case b.postgres && part.wildcard != 0:
			p.WriteByte(part.wildcard)
		case b.postgres:
			p.WriteString(strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(part.literal))
		case part.wildcard == '%':
			p.WriteByte('*')
		case part.wildcard == '_':
			p.WriteByte('?')
		default:
			p.WriteString(strings.NewReplacer("*", "[*]", "?", "[?]", "[", "[[]").Replace(part.literal))
		}
	}
	if b.postgres {
		b.text(name, " LIKE ")
		b.arg(kindText, p.String())
		b.text(` ESCAPE '\'`)
		return
	}
	b.text(name, " GLOB ")
	b.arg(kindText, p.String())
}

// has tests whether a list holds any of the values. The column's name is
// qualified: json_each has columns of its own.
func (b *builder) has(c *column, values []any) {
	name := quote(c.table) + "." + quote(c.Name)
	if b.postgres {
		b.text("(")
		for i, value := range values {
			if i > 0 {
				b.text(" OR ")
			}
			b.text("jsonb_exists(", name, "::jsonb, ")
			b.arg(kindText, value)
			b.text(")")
		}
		b.text(")")
		return
	}
	b.text("EXISTS (SELECT 1 FROM json_each(", name, ") WHERE value IN (")
	for i, value := range values {
		if i > 0 {
			b.text(",")
		}
		b.arg(kindText, value)
	}
	b.text("))")
}
