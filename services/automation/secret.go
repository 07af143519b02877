package automation

import (
	"encoding/json"
	"strings"

	"github.com/objecthost/objecthost/services/data"
)

// secretKeys are the keys of a node's config that hold secrets.
var secretKeys = []string{"secret", "signingSecret"}

// secretHeader reports whether a header's value is masked.
func secretHeader(name string) bool {
	name = strings.ToLower(name)
	for _, part := range []string{"authorization", "cookie", "key", "token", "secret"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// eachSecret calls fn with every place of a secret in a decoded definition: the
// map that holds it, its key there, and a path that does not depend on the order
// of nodes.
func eachSecret(value any, fn func(holder map[string]any, key, path string)) {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			eachSecret(item, fn)
		}
	case map[string]any:
		id, _ := v["id"].(string)
		if config, ok := v["config"].(map[string]any); ok && id != "" {
			for _, key := range secretKeys {
				if _, ok := config[key].(string); ok {
					fn(config, key, id+"."+key)
				}
			}
			headers, _ := config["headers"].(map[string]any)
			for name, value := range headers {
				if _, ok := value.(string); ok && secretHeader(name) {
					fn(headers, name, id+".headers."+strings.ToLower(name))
				}
			}
		}
		for _, item := range v {
			eachSecret(item, fn)
		}
	}
}

// masked is a definition as it is shown: secrets are not.
func masked(def *Definition) (json.RawMessage, error) {
	shown := *def
	shown.Nodes = make([]Node, len(def.Nodes))
	for i, n := range def.Nodes {
		shown.Nodes[i] = n
		var copied map[string]any
		raw, err := encodeJSON(map[string]any{"id": n.ID, "config": n.Config})
		if err != nil {
			return nil, err
		}
		if err := decodeJSON(raw, &copied); err != nil {
			return nil, err
		}
		eachSecret(copied, func(holder map[string]any, key, _ string) { holder[key] = data.Mask })
		if n.Config != nil {
			shown.Nodes[i].Config, _ = copied["config"].(map[string]any)
		}
	}
	return encodeJSON(&shown)
}

// unmask puts the stored secrets where a definition has masks.
func unmask(source, stored []byte) (filled []byte, changed bool) {
	if !strings.Contains(string(source), data.Mask) {
		return source, false
	}
	var now, before any
	if decodeJSON(source, &now) != nil || decodeJSON(stored, &before) != nil {
		return source, false
	}
	known := map[string]string{}
	eachSecret(before, func(holder map[string]any, key, path string) { known[path], _ = holder[key].(string) })
	eachSecret(now, func(holder map[string]any, key, path string) {
		if secret, ok := known[path]; ok && holder[key] == data.Mask {
			holder[key] = secret
			changed = true
		}
	})
	filled, err := encodeJSON(now)
	return filled, changed && err == nil
}
