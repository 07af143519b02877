package auth

import (
	"regexp"
	"strings"
	"testing"
)

func TestNewSecret(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^osk_[A-Za-z0-9_-]{43}$`)
	seen := map[string]bool{}
	for range 100 {
		s := newSecret()
		if !form.MatchString(s) || !wellFormed(s) || seen[s] {
			t.Fatalf("newSecret = %q", s)
		}
		seen[s] = true
	}
}

func TestNewID(t *testing.T) {
	t.Parallel()
	if id := newID(); !regexp.MustCompile(`^[A-Za-z0-9_-]{16}$`).MatchString(id) {
		t.Errorf("newID = %q", id)
	}
}

func TestWellFormed(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("A", 43)
	for s, want := range map[string]bool{
		"osk_" + body:             true,
		"":                        false,
		"osk_":                    false,
		"osk_" + body + "A":       false,
		"osk_" + body[:42]:        false,
		"OSK_" + body:             false,
		"osk_" + body[:42] + "B":  false, // sets bits that the encoder leaves clear
		"osk_" + body[:42] + "+":  false,
		"osk_" + body[:42] + "\n": false,
	} {
		if got := wellFormed(s); got != want {
			t.Errorf("wellFormed(%q) = %v, want %v", s, got, want)
		}
	}
}

func TestHashSecret(t *testing.T) {
	t.Parallel()
	// What sha256sum prints for the 47 bytes of the key.
	const want = "fe7551c6c02ca8eeeecbaeeea66ccce95e09a68002c9b077c457e4096f093307"
	if got := hashSecret("osk_" + strings.Repeat("A", 43)); got != want {
		t.Errorf("hashSecret = %s, want %s", got, want)
	}
}
