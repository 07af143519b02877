//go:build unix

package messaging

import (
	"errors"
	"syscall"
)

// peekSocket looks whether an idle socket has something to read, an end
// included. Go's sockets do not block.
func peekSocket(fd uintptr) socketState {
	var b [1]byte
	n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
	switch {
	case n > 0:
		return socketHasBytes
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR):
		return socketSilent
	}
	return socketClosed
}
