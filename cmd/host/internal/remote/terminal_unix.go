//go:build unix

package remote

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminalWidth is the width of f in columns, 0 when it is no terminal.
func terminalWidth(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
