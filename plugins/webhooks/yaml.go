package webhooks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
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
	var out []declaration
	dec := yaml.NewDecoder(bytes.NewReader(source))
	for {
		var document any
		err := dec.Decode(&document)
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			// The library's text quotes the source, which may hold a secret.
			line := 0
			var syntax yaml.Error
			if errors.As(err, &syntax) && syntax.GetToken() != nil {
				line = syntax.GetToken().Position.Line
			}
			return nil, &DeclarationError{fmt.Sprintf("%s line %d", file, line), "is not valid YAML"}
		case document == nil:
			continue
		}
		list, isList := document.([]any)
		if !isList {
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
