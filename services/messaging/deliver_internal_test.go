package messaging

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

// TestHeadersJSON: headers are written as encoding/json writes them.
func TestHeadersJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.StringMatching(`[A-Za-z-]{1,12}`), rapid.String())
		h := rapid.MapOfN(text, rapid.SliceOfN(text, 1, 3), 1, 5).Draw(t, "headers")
		want, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		if got := headersJSON(h); got != string(want) {
			t.Fatalf("%s, want %s", got, want)
		}
	})
	if got := headersJSON(nil); got != "" {
		t.Errorf("no headers are %q", got)
	}
}
