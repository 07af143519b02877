//go:build unix

package postgres

import (
	"errors"
	"net"
	"syscall"
)

// silent tells, without asking the server, whether nothing has arrived on a
// connection since it was last read: no end, and no last words of a session
// that was terminated. known is false where that can't be seen.
func silent(c net.Conn) (silent, known bool) {
	raw, ok := c.(syscall.Conn)
	if !ok {
		return false, false
	}
	socket, err := raw.SyscallConn()
	if err != nil {
		return false, false
	}
	var b [1]byte
	err = socket.Control(func(fd uintptr) {
		// Go's sockets don't block.
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		silent = errors.Is(err, syscall.EAGAIN)
	})
	return silent && err == nil, true
}
