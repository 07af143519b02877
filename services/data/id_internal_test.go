package data

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestIdsGrow(t *testing.T) {
	t.Parallel()
	if sorted := []byte(idAlphabet); len(sorted) != 64 || !slices.IsSorted(sorted) {
		t.Fatalf("the alphabet has %d characters or is not in order", len(sorted))
	}
	form := regexp.MustCompile(`^[A-Za-z0-9_-]{16}$`)
	seen := make(map[string]bool)
	last, lastAt := "", time.Now().UnixMilli()
	for range 100_000 {
		id, at := newID(), time.Now().UnixMilli()
		if !form.MatchString(id) || seen[id] {
			t.Fatalf("id %q is malformed or not new", id)
		}
		if at > lastAt && last != "" && id[:7] < last[:7] {
			t.Fatalf("%q of %d is before %q of %d", id, at, last, lastAt)
		}
		seen[id], last, lastAt = true, id, at
	}
	var at int64
	for _, c := range []byte(newID()[:7]) {
		at = at<<6 | int64(strings.IndexByte(idAlphabet, c))
	}
	if age := time.Since(time.UnixMilli(at)); age < 0 || age > time.Minute {
		t.Errorf("an id of now is %s old", age)
	}
}
