package howto

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Block is a fenced block of a page. What follows the language on its first
// line, which readers do not see, names the file that it belongs to, or what a
// shell block is for.
type Block struct {
	Page string
	Line int
	// Language is go, sh, yaml, …; Name the rest of the first line.
	Language, Name string
	Text           string
}

// String tells where the block is.
func (b Block) String() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// Pages reads the blocks of all pages in a folder.
func Pages(folder string) ([]Block, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.md"))
	if err != nil {
		return nil, err
	}
	var all []Block
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		blocks, err := parse(filepath.Base(file), string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, blocks...)
	}
	return all, nil
}

// parse finds the blocks of a page. Fences start their lines.
func parse(page, text string) ([]Block, error) {
	var all []Block
	var open *Block
	for i, line := range strings.SplitAfter(text, "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case !isFence && open != nil:
			open.Text += line
		case isFence && open != nil:
			all = append(all, *open)
			open = nil
		case isFence:
			language, name, _ := strings.Cut(strings.TrimSpace(fence), " ")
			open = &Block{Page: page, Line: i + 1, Language: language, Name: name}
		}
	}
	if open != nil {
		return nil, fmt.Errorf("%s: the block is not closed", open)
	}
	return all, nil
}

// Within reports whether code contains the block, whatever the indentation of
// either.
func (b Block) Within(code string) bool {
	return strings.Contains(flat(code), flat(b.Text))
}

func flat(code string) string {
	lines := strings.Split(code, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return strings.Join(lines, "\n")
}
