//go:build !unix

package remote

import "os"

// terminalWidth is not known here, so that nothing is cut.
func terminalWidth(*os.File) int { return 0 }
