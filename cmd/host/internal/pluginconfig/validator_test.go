package pluginconfig_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/cmd/host/internal/document"
	"github.com/objecthost/objecthost/cmd/host/internal/pluginconfig"
)

const schema = `{"type":"object","additionalProperties":false,"required":["size"],"properties":{
	"size":{"type":"integer","minimum":1,"maximum":500},
	"mode":{"enum":["fast","safe"]},
	"url":{"type":"string","format":"uri"},
	"nested":{"type":"object","additionalProperties":false,"properties":{"list":{"type":"array","items":{"type":"string"}}}}}}`

func TestValidateConfig(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, yaml, want string }{
		{"good", "size: 5\nmode: fast\nurl: https://x.example/\nnested: {list: [a]}\n", ""},
		{"missing", "mode: safe\n", `f.yaml:3: plugins.com.x: missing property 'size'`},
		{"bound", "size: 501\n", `f.yaml:4: plugins.com.x.size: maximum: got 501, want 500`},
		{"all faults in the order of the file", "nested:\n  list:\n  - a\n  - 1\n  no: 2\nsize: 0\nmode: slow\nalso: 1\n",
			`f.yaml:7: plugins.com.x.nested.list.1: got number, want string; ` +
				`f.yaml:8: plugins.com.x.nested.no: is not known; ` +
				`f.yaml:9: plugins.com.x.size: minimum: got 0, want 1; ` +
				`f.yaml:10: plugins.com.x.mode: value must be one of 'fast', 'safe'; ` +
				`f.yaml:11: plugins.com.x.also: is not known`},
		{"format", "size: 1\nurl: nowhere\n", `f.yaml:5: plugins.com.x.url: 'nowhere' is not valid uri: relative url`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			doc, err := document.Parse("f.yaml", []byte("db: sqlite:x\nplugins:\n  com.x:\n    "+strings.ReplaceAll(strings.TrimSuffix(tc.yaml, "\n"), "\n", "\n    ")))
			if err != nil {
				t.Fatal(err)
			}
			v := &pluginconfig.Validator{File: doc}
			err = v.ValidateConfig("com.x", []byte(schema), doc.JSON("plugins", "com.x"))
			if tc.want == "" && err == nil {
				return
			}
			var faults pluginconfig.Faults
			if !errors.As(err, &faults) || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestValidateConfigWithoutFile(t *testing.T) {
	t.Parallel()
	err := (&pluginconfig.Validator{}).ValidateConfig("com.x", []byte(schema), []byte(`{"size":0}`))
	if err == nil || err.Error() != "plugins.com.x.size: minimum: got 0, want 1" {
		t.Errorf("got %v", err)
	}
}

func TestValidateConfigRefusesForeignSchemas(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{`{"type":"nothing"}`, `{"$ref":"file:///etc/passwd"}`, `{`} {
		err := (&pluginconfig.Validator{}).ValidateConfig("com.x", []byte(bad), []byte(`{}`))
		var faults pluginconfig.Faults
		if err == nil || errors.As(err, &faults) || !strings.HasPrefix(err.Error(), "the schema of the plugin is not valid") {
			t.Errorf("%s: got %v", bad, err)
		}
	}
}
