package seal

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func generate(t testing.TB) *Keyring {
	t.Helper()
	k, err := Generate()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func sealed(t testing.TB, k *Keyring, text, aad string) string {
	t.Helper()
	s, err := k.Seal([]byte(text), []byte(aad))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSealAndOpen(t *testing.T) {
	t.Parallel()
	k := generate(t)
	for _, text := range []string{"", "whsec_abc", "\x00\xff", strings.Repeat("x", 100_000)} {
		s := sealed(t, k, text, "row 1")
		if !strings.HasPrefix(s, "s1.") {
			t.Fatalf("sealed text starts with %.5q, want s1.", s)
		}
		got, err := k.Open(s, []byte("row 1"))
		if err != nil || string(got) != text {
			t.Fatalf("Open = %.20q, %v", got, err)
		}
	}
	if sealed(t, k, "a", "") == sealed(t, k, "a", "") {
		t.Error("sealing twice gives the same text")
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	k := generate(t)
	s := sealed(t, k, "secret", "row 1")
	flipped := []byte(s)
	flipped[len(flipped)-10] ^= 1
	for name, c := range map[string]struct{ text, aad string }{
		"empty":         {"", "row 1"},
		"plain text":    {"secret", "row 1"},
		"prefix only":   {"s1.", "row 1"},
		"other version": {"s2." + s[3:], "row 1"},
		"other row":     {s, "row 2"},
		"no aad":        {s, ""},
		"changed":       {string(flipped), "row 1"},
		"cut":           {s[:len(s)-4], "row 1"},
		"line break":    {s[:20] + "\n" + s[20:], "row 1"},
		"padding":       {s + "=", "row 1"},
		"other key":     {sealed(t, generate(t), "secret", "row 1"), "row 1"},
	} {
		got, err := k.Open(c.text, []byte(c.aad))
		if err != ErrUnreadable || got != nil {
			t.Errorf("%s: Open = %q, %v; want nothing and ErrUnreadable", name, got, err)
		}
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	k := generate(t)
	old := sealed(t, k, "old", "")
	both, id, err := k.Add()
	if err != nil {
		t.Fatal(err)
	}
	if both.KeyID() != k.KeyID() {
		t.Fatal("Add changed the primary key")
	}
	if got := both.KeyIDs(); len(got) != 2 || got[0] != k.KeyID() || got[1] != id {
		t.Fatalf("KeyIDs = %v, want [%s %s]", got, k.KeyID(), id)
	}
	if _, err := k.Open(sealed(t, both, "x", ""), nil); err != nil {
		t.Fatalf("a node without the new key can't open what a node with both seals before the promotion: %v", err)
	}
	promoted, err := both.Promote(id)
	if err != nil {
		t.Fatal(err)
	}
	if promoted.KeyID() != id {
		t.Fatalf("KeyID = %s, want %s", promoted.KeyID(), id)
	}
	if got, err := promoted.Open(old, nil); err != nil || string(got) != "old" {
		t.Fatalf("the promoted keyring opens old texts: %q, %v", got, err)
	}
	fresh := sealed(t, promoted, "new", "")
	if got, err := both.Open(fresh, nil); err != nil || string(got) != "new" {
		t.Fatalf("a node with both keys opens new texts: %q, %v", got, err)
	}
	if _, err := k.Open(fresh, nil); err != ErrUnreadable {
		t.Fatalf("the old key opened a text of the new one: %v", err)
	}
	if _, err := promoted.Promote("00000000"); err == nil {
		t.Fatal("Promote took an unknown id")
	}
}

func TestExportParse(t *testing.T) {
	t.Parallel()
	k := generate(t)
	text, err := k.Export()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(text + "\n")
	if err != nil || again.KeyID() != k.KeyID() {
		t.Fatalf("Parse = %v, %v", again, err)
	}
	if got, err := again.Open(sealed(t, k, "x", ""), nil); err != nil || string(got) != "x" {
		t.Fatalf("the parsed keyring doesn't open: %v", err)
	}
	for _, bad := range []string{"", "ohk1.", "ohk1.!!", text[:len(text)-8], "ohk1.AAAA", text[5:]} {
		if _, err := Parse(bad); err != ErrInvalidKeyring {
			t.Errorf("Parse(%.8q…) = %v, want ErrInvalidKeyring", bad, err)
		}
	}
}

func TestKeyringPrintsNoKey(t *testing.T) {
	t.Parallel()
	k := generate(t)
	want := "keyring(primary " + k.KeyID() + " of 1)"
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(verb, k); got != want {
			t.Errorf("%s prints %q, want %q", verb, got, want)
		}
	}
	if got := k.LogValue().String(); got != want {
		t.Errorf("LogValue = %q, want %q", got, want)
	}
	if b, err := json.Marshal(k); err != nil || string(b) != "{}" {
		t.Errorf("JSON = %s, %v", b, err)
	}
}

func TestWriteFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sub", "host.key")
	first, second := generate(t), generate(t)
	if err := first.createFile(path); err != nil {
		t.Fatal(err)
	}
	if err := second.createFile(path); !errors.Is(err, os.ErrExist) {
		t.Fatalf("createFile over a file = %v, want ErrExist", err)
	}
	if k, err := Load(Source{File: path}); err != nil || k.KeyID() != first.KeyID() {
		t.Fatalf("Load = %v, %v", k, err)
	}
	if err := second.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	if k, err := Load(Source{File: path}); err != nil || k.KeyID() != second.KeyID() {
		t.Fatalf("Load = %v, %v", k, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode = %v, %v; want 0600", info.Mode().Perm(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Fatalf("%d files are left, want the key file alone", len(entries))
	}
}

func FuzzOpen(f *testing.F) {
	k := generate(f)
	f.Add(sealed(f, k, "secret", "a"), []byte("a"))
	f.Add("s1.", []byte{})
	f.Add("s1.AQAAAAA", []byte("a"))
	f.Fuzz(func(t *testing.T, text string, aad []byte) {
		got, err := k.Open(text, aad)
		if err == nil {
			if again, err := k.Open(text, append(aad, 0)); err == nil {
				t.Fatalf("opens with other data: %q and %q", got, again)
			}
			return
		}
		if err != ErrUnreadable || got != nil {
			t.Fatalf("Open = %q, %v; want nothing and ErrUnreadable", got, err)
		}
	})
}
