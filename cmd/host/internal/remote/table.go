package remote

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// minColumn is the width to which a wide column may shrink.
const minColumn = 8

// table collects rows of text and prints them in columns.
type table struct {
	head []string
	rows [][]string
}

func newTable(head ...string) *table { return &table{head: head} }

func (t *table) add(cells ...string) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = printable(c)
	}
	t.rows = append(t.rows, row)
}

// print writes the table. On a terminal, the widest columns are cut until a
// line fits into width; a width of 0 cuts nothing.
func (t *table) print(w io.Writer, width int) error {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	if width > 0 {
		fit(widths, width)
	}
	var b strings.Builder
	for _, row := range append([][]string{t.head}, t.rows...) {
		line := ""
		for i, c := range row {
			line += pad(cut(c, widths[i]), widths[i]+2)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// fit takes width from the widest column, one by one, until all fit or none can
// give more.
func fit(widths []int, width int) {
	total := 2 * (len(widths) - 1)
	for _, n := range widths {
		total += n
	}
	for ; total > width; total-- {
		widest := 0
		for i, n := range widths {
			if n > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= minColumn {
			return
		}
		widths[widest]--
	}
}

func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-1]) + "…"
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}

// printable replaces what would move a terminal's cursor: what a receiver
// answered is not to be trusted with that.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

// widthOf is the width of the terminal behind w: COLUMNS, else what the
// terminal says, and 0 when w is none.
func widthOf(w io.Writer, getenv func(string) string) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width := terminalWidth(f)
	if n, err := strconv.Atoi(getenv("COLUMNS")); err == nil && n > 0 && width > 0 {
		return n
	}
	return width
}

// pairs prints names and values below each other, values in full.
func pairs(w io.Writer, cells ...string) error {
	for i := 0; i+1 < len(cells); i += 2 {
		if cells[i+1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "%-14s %s\n", cells[i], printable(cells[i+1])); err != nil {
			return err
		}
	}
	return nil
}
