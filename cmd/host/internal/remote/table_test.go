package remote

import (
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	t.Parallel()
	tab := newTable("ID", "NAME", "URL")
	tab.add("1", "short", "https://example.com/a/rather/long/path")
	tab.add("2", "héllo wörld", "x\x1b[2Jy\nz")
	for _, tc := range []struct {
		name  string
		width int
		want  string
	}{
		{"uncut", 0, `
ID  NAME         URL
1   short        https://example.com/a/rather/long/path
2   héllo wörld  x [2Jy z
`},
		{"cut", 40, `
ID  NAME         URL
1   short        https://example.com/a/…
2   héllo wörld  x [2Jy z
`},
		{"too narrow", 5, `
ID  NAME      URL
1   short     https:/…
2   héllo w…  x [2Jy z
`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var b strings.Builder
			if err := tab.print(&b, tc.width); err != nil {
				t.Fatal(err)
			}
			if got := "\n" + b.String(); got != tc.want {
				t.Errorf("got:%swant:%s", got, tc.want)
			}
		})
	}
}
