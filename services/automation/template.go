package automation

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// A template is a text with tokens in single braces: {name}, {a.b.0}, {i + 1},
// {NOW()}. A text that is one token takes the token's value with its type; in a
// longer text the values are inserted. What stands in braces and is no token,
// such as JSON in a text, stays as it is.
//
//	token  = sum
//	sum    = product { ("+" | "-") product }
//	product = factor { ("*" | "/" | "%") factor }
//	factor = number | "-" factor | "(" sum ")" | ("NOW" | "TODAY") "()" | path
//	path   = name { "." (name | digits) }
type template struct {
	parts []templatePart
}

// templatePart is either text or a token.
type templatePart struct {
	text  string
	token *token
}

// token is the expression of one pair of braces. path is set when the whole of
// it reads as a path whose names may hold dashes: {my-node.id} is the output of
// that node if there is one, and a subtraction otherwise.
type token struct {
	source string
	path   []string
	root   *templateNode
}

// templateNode is a node of a token's syntax tree: a number, a path, a call, or
// an operator over one or two operands.
type templateNode struct {
	kind        byte // '0' number, 'p' path, 'c' call, or the operator; '_' negates
	text        string
	path        []string
	left, right *templateNode
}

const (
	maxTemplateLength = 1 << 20
	maxTokenDepth     = 50
)

var dashedPath = regexp.MustCompile(`^[A-Za-z_$][\w$-]*(\.[\w$-]+)*$`)

// parseTemplate splits a text. It never fails: what is no token is text.
func parseTemplate(source string) template {
	var t template
	text := func(s string) {
		if n := len(t.parts); n > 0 && t.parts[n-1].token == nil {
			t.parts[n-1].text += s
		} else if s != "" {
			t.parts = append(t.parts, templatePart{text: s})
		}
	}
	for source != "" {
		open := strings.IndexByte(source, '{')
		if open < 0 {
			break
		}
		size := strings.IndexAny(source[open+1:], "{}")
		if size < 0 || source[open+1+size] == '{' {
			text(source[:open+1])
			source = source[open+1:]
			continue
		}
		body := source[open+1 : open+1+size]
		text(source[:open])
		if parsed, ok := parseToken(body); ok {
			t.parts = append(t.parts, templatePart{token: parsed})
		} else {
			text("{" + body + "}")
		}
		source = source[open+size+2:]
	}
	text(source)
	return t
}

// tokens reports whether the template has any.
func (t template) tokens() bool {
	for _, part := range t.parts {
		if part.token != nil {
			return true
		}
	}
	return false
}

// hasTokens reports whether a text is a template with tokens.
func hasTokens(source string) bool {
	return strings.Contains(source, "{") && parseTemplate(source).tokens()
}

func parseToken(source string) (*token, bool) {
	trimmed := strings.TrimSpace(source)
	if trimmed == "" || len(trimmed) > 1000 {
		return nil, false
	}
	t := &token{source: trimmed}
	if dashedPath.MatchString(trimmed) {
		t.path = strings.Split(trimmed, ".")
	}
	p := &tokenParser{rest: trimmed}
	root, ok := p.sum(0)
	if ok && strings.TrimSpace(p.rest) == "" {
		t.root = root
	}
	// A number alone is no token: {3} in a text is a quantifier or the like.
	if t.root != nil && t.root.constant() {
		t.root = nil
	}
	return t, t.root != nil || t.path != nil
}

// constant reports whether a tree names nothing.
func (n *templateNode) constant() bool {
	switch n.kind {
	case '0':
		return true
	case 'p', 'c':
		return false
	}
	return n.left.constant() && (n.right == nil || n.right.constant())
}

type tokenParser struct{ rest string }

func (p *tokenParser) peek() byte {
	p.rest = strings.TrimLeft(p.rest, " \t")
	if p.rest == "" {
		return 0
	}
	return p.rest[0]
}

func (p *tokenParser) sum(depth int) (*templateNode, bool) { return p.chain("+-", p.product, depth) }

func (p *tokenParser) product(depth int) (*templateNode, bool) {
	return p.chain("*/%", p.factor, depth)
}

func (p *tokenParser) chain(operators string, next func(int) (*templateNode, bool), depth int) (*templateNode, bool) {
	left, ok := next(depth)
	for ok && p.peek() != 0 && strings.IndexByte(operators, p.rest[0]) >= 0 {
		operator := p.rest[0]
		p.rest = p.rest[1:]
		var right *templateNode
		if right, ok = next(depth); ok {
			left = &templateNode{kind: operator, left: left, right: right}
		}
	}
	return left, ok
}

var (
	numberForm = regexp.MustCompile(`^(\d+(\.\d+)?|\.\d+)`)
	nameForm   = regexp.MustCompile(`^[A-Za-z_$][\w$]*`)
	partForm   = regexp.MustCompile(`^\.[\w$]+`)
)

func (p *tokenParser) factor(depth int) (*templateNode, bool) {
	if depth > maxTokenDepth {
		return nil, false
	}
	switch c := p.peek(); {
	case c == '-':
		p.rest = p.rest[1:]
		operand, ok := p.factor(depth + 1)
		return &templateNode{kind: '_', left: operand}, ok
	case c == '(':
		p.rest = p.rest[1:]
		inner, ok := p.sum(depth + 1)
		if !ok || p.peek() != ')' {
			return nil, false
		}
		p.rest = p.rest[1:]
		return inner, true
	}
	if number := numberForm.FindString(p.rest); number != "" {
		p.rest = p.rest[len(number):]
		return &templateNode{kind: '0', text: number}, true
	}
	name := nameForm.FindString(p.rest)
	if name == "" {
		return nil, false
	}
	p.rest = p.rest[len(name):]
	if (name == "NOW" || name == "TODAY") && strings.HasPrefix(p.rest, "()") {
		p.rest = p.rest[2:]
		return &templateNode{kind: 'c', text: name}, true
	}
	path := []string{name}
	for {
		part := partForm.FindString(p.rest)
		if part == "" {
			return &templateNode{kind: 'p', path: path}, true
		}
		p.rest = p.rest[len(part):]
		path = append(path, part[1:])
	}
}

// TemplateError tells why a template has no value.
type TemplateError struct {
	Token  string
	Reason string
}

func (e *TemplateError) Error() string { return fmt.Sprintf("template {%s}: %s", e.Token, e.Reason) }

// checkText refuses what no column could hold.
func checkText(text string) error {
	switch {
	case len(text) > maxTemplateLength:
		return fmt.Errorf("the text is longer than %d bytes", maxTemplateLength)
	case !utf8.ValidString(text):
		return fmt.Errorf("the text is not valid UTF-8")
	}
	return nil
}
