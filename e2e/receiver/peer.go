package receiver

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// nodes knows the hosts by where they call from: an IP address, or a process.
type nodes struct {
	mu   sync.Mutex
	from map[int]string
}

func (n *nodes) set(number int, from string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.from == nil {
		n.from = make(map[int]string)
	}
	n.from[number] = from
}

type peerKey struct{}

// peer is the host at the other end of a connection, looked up at its first
// request.
type peer struct {
	conn net.Conn
	once sync.Once
	node int
}

// remember is an http.Server's ConnContext.
func (n *nodes) remember(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, &peer{conn: c})
}

// of returns the number of the host that sent a request, -1 for none.
func (n *nodes) of(r *http.Request) int {
	p := r.Context().Value(peerKey{}).(*peer)
	p.once.Do(func() { p.node = n.find(p.conn) })
	return p.node
}

func (n *nodes) find(c net.Conn) int {
	remote := c.RemoteAddr().(*net.TCPAddr)
	n.mu.Lock()
	defer n.mu.Unlock()
	socket := ""
	for number, from := range n.from {
		pid, process := strings.CutPrefix(from, "pid:")
		if !process {
			if from == remote.IP.String() {
				return number
			}
			continue
		}
		if socket == "" {
			socket = socketOf(remote, c.LocalAddr().(*net.TCPAddr))
		}
		if socket != "" && hasFile(pid, socket) {
			return number
		}
	}
	return -1
}

// socketOf is how the files of a process name the socket from one IPv4 address
// to another, "" when there is none. /proc/net/tcp writes addresses as they
// stand in memory.
func socketOf(from, to *net.TCPAddr) string {
	table, err := os.Open("/proc/net/tcp")
	if err != nil {
		return ""
	}
	defer table.Close()
	want := [2]string{tableAddr(from), tableAddr(to)}
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) > 9 && f[1] == want[0] && f[2] == want[1] {
			return "socket:[" + f[9] + "]"
		}
	}
	return ""
}

func tableAddr(a *net.TCPAddr) string {
	ip := a.IP.To4()
	if ip == nil {
		return ""
	}
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(ip), a.Port)
}

// hasFile tells that a process has a file open.
func hasFile(pid, name string) bool {
	files, err := filepath.Glob("/proc/" + pid + "/fd/*")
	if err != nil {
		return false
	}
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil && target == name {
			return true
		}
	}
	return false
}
