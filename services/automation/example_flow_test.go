package automation

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/services/data"
)

// The flows of examples/flows load as they are, and do what they say.
func TestExampleFlows(t *testing.T) {
	each(t, nodeConfig{}, func(t *testing.T, n *node) {
		const examples = "../../examples/flows"
		rx := newReceiver(t)
		dir := t.TempDir()
		files, err := os.ReadDir(examples)
		fatal(t, err)
		for _, file := range files {
			source, err := os.ReadFile(filepath.Join(examples, file.Name()))
			fatal(t, err)
			text := strings.ReplaceAll(string(source), "http://127.0.0.1:9400", rx.URL)
			fatal(t, os.WriteFile(filepath.Join(dir, file.Name()), []byte(text), 0o600))
		}
		fatal(t, n.LoadDir(t.Context(), dir))
		r, err := n.engine.Create(user(t), "account", data.Record{"name": "Acme", "industry": "technology", "annual_revenue": 5})
		fatal(t, err)
		equal(t, "run", []any{n.ended(t, "welcome", 1)[0].Output}, `[{"outcome":"announced after 1 attempt(s)"}]`)
		record, err := n.engine.Get(system(t), "account", r.ID)
		fatal(t, err)
		equal(t, "record", []any{record["code"]}, []any{r.ID})
		equal(t, "call", []any{rx.got()[0].path, rx.got()[0].body}, []any{"/accounts", `{"id":"` + r.ID + `","name":"Acme","revenue":5}`})

		rx.mu.Lock()
		rx.answer = func(*http.Request, []byte) (int, string) { return http.StatusGone, "" }
		rx.mu.Unlock()
		_, err = n.engine.Create(user(t), "account", data.Record{"name": "Lost", "industry": "technology"})
		fatal(t, err)
		_, err = n.engine.Create(user(t), "account", data.Record{"name": "Not asked for"})
		fatal(t, err)
		equal(t, "run", []any{n.ended(t, "welcome", 2)[0].Output}, `[{"outcome":"not announced: HTTP 410"}]`)
	})
}
