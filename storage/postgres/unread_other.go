//go:build !unix

package postgres

import "net"

// silent can't tell whether something has arrived on a connection.
func silent(net.Conn) (silent, known bool) { return false, false }
