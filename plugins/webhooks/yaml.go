package webhooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"
)

// DeclarationError tells which declared webhook cannot be used. It never holds
// a secret.
type DeclarationError struct {
	// Origin is the file and place, or the plugin, that declares it.
	Origin string
	Reason string
}

func (e *DeclarationError) Error() string {
	return fmt.Sprintf("webhooks: declaration %s: %s", e.Origin, e.Reason)
}

// declaration is one webhook that a package brings along.
type declaration struct {
	origin string
	source json.RawMessage
}

// loadDir reads the declarations of a folder: the files *.yaml, *.yml and
// *.json in the order of their names, each with one or several documents, each
// of which is a webhook or a list of webhooks. In url, secret, header values
// and credentials ${NAME} stands for an environment variable, which must be
// set, and $${ for ${ itself.
func loadDir(dir string, getenv func(string) (string, bool)) ([]declaration, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("webhooks: read declarations: %w", err)
	}
	var out []declaration
	for _, entry := range entries {
		if entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(entry.Name())) {
			continue
		}
		source, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("webhooks: read declarations: %w", err)
		}
		found, err := parseDeclarations(entry.Name(), source, getenv)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

func parseDeclarations(file string, source []byte, getenv func(string) (string, bool)) ([]declaration, error) {
	parsed, err := parser.ParseBytes(source, 0)
	if err != nil {
		return nil, yamlError(file, err)
	}
	var out []declaration
	for i, doc := range parsed.Docs {
		if doc.Body == nil {
			if i == len(parsed.Docs)-1 && doc.Start != nil {
				// The parser drops everything behind an empty document.
				return nil, &DeclarationError{fmt.Sprintf("%s line %d", file, doc.Start.Position.Line), "is an empty document"}
			}
			continue
		}
		var document any
		if err := yaml.NodeToValue(doc.Body, &document); err != nil {
			return nil, yamlError(file, err)
		}
		list, isList := document.([]any)
		if !isList && document != nil {
			list = []any{document}
		}
		for _, one := range list {
			d := declaration{origin: fmt.Sprintf("%s webhook %d", file, len(out)+1)}
			webhook, ok := one.(map[string]any)
			if !ok {
				return nil, &DeclarationError{d.origin, "is no webhook: it must be a map"}
			}
			if err := expandWebhook(webhook, getenv); err != nil {
				return nil, &DeclarationError{d.origin, err.Error()}
			}
			if d.source, err = encode(webhook); err != nil {
				return nil, &DeclarationError{d.origin, "holds a value that JSON has not"}
			}
			out = append(out, d)
		}
	}
	return out, nil
}

// yamlError keeps the line of a fault only: the library's text quotes the
// source, which may hold a secret.
func yamlError(file string, err error) error {
	var fault yaml.Error
	if errors.As(err, &fault) && fault.GetToken() != nil && fault.GetToken().Position != nil {
		file = fmt.Sprintf("%s line %d", file, fault.GetToken().Position.Line)
	}
	return &DeclarationError{file, "is not valid YAML"}
}

// expandWebhook replaces variables where secrets and addresses stand.
func expandWebhook(webhook map[string]any, getenv func(string) (string, bool)) error {
	for _, key := range []string{"url", "secret"} {
		if err := expandIn(webhook, key, getenv); err != nil {
			return err
		}
	}
	maps := []any{webhook["headers"]}
	if auth, ok := webhook["authentication"].(map[string]any); ok {
		if err := expandIn(auth, "credentials", getenv); err != nil {
			return err
		}
		maps = append(maps, auth["credentials"])
	}
	for _, one := range maps {
		values, _ := one.(map[string]any)
		for key := range values {
			if err := expandIn(values, key, getenv); err != nil {
				return err
			}
		}
	}
	return nil
}

func expandIn(values map[string]any, key string, getenv func(string) (string, bool)) error {
	source, ok := values[key].(string)
	if !ok {
		return nil
	}
	expanded, err := expand(source, getenv)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	values[key] = expanded
	return nil
}

// expand replaces ${NAME} by the variable's value and $${ by ${.
func expand(source string, getenv func(string) (string, bool)) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(source, "${")
		if !found {
			out.WriteString(source)
			return out.String(), nil
		}
		if literal, escaped := strings.CutSuffix(before, "$"); escaped {
			out.WriteString(literal + "${")
			source = rest
			continue
		}
		out.WriteString(before)
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			return "", errors.New("a ${ is not closed")
		}
		value, set := getenv(name)
		if !set {
			return "", fmt.Errorf("the environment variable %q is not set", name)
		}
		out.WriteString(value)
		source = after
	}
}
