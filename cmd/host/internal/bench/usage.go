package bench

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/objecthost/objecthost/storage"
)

// usage is processor time spent so far.
type usage struct {
	host time.Duration
	// backends is the time of each connection's server process, nil when it
	// cannot be read here.
	backends map[int]time.Duration
}

// usage reads the processor time of this process and of the database's
// processes that serve it. A SQLite database has none: it runs in this process.
func (d *database) usage(ctx context.Context) (usage, error) {
	if d.Dialect() == storage.SQLite {
		return usage{host: processTime(), backends: map[int]time.Duration{}}, nil
	}
	backends, err := d.backends(ctx)
	return usage{host: processTime(), backends: backends}, err
}

// since is the time spent between two readings; measured is false when the
// database's part could not be read.
func (u usage) since(start usage) (host, database time.Duration, measured bool) {
	for pid, spent := range u.backends {
		database += spent - start.backends[pid]
	}
	return u.host - start.host, database, u.backends != nil && start.backends != nil
}

// backends is nil when the server runs on another machine, or where its
// processes cannot be seen.
func (d *database) backends(ctx context.Context) (_ map[int]time.Duration, err error) {
	rows, err := d.observer.Read(ctx).QueryContext(ctx,
		`SELECT pid, coalesce(host(inet_server_addr()), '') FROM pg_stat_activity WHERE application_name = $1`, d.application)
	if err != nil {
		return nil, fmt.Errorf("read pg_stat_activity: %w", err)
	}
	defer rows.Close()
	spent := map[int]time.Duration{}
	for rows.Next() {
		var pid int
		var addr string
		if err := rows.Scan(&pid, &addr); err != nil {
			return nil, fmt.Errorf("read pg_stat_activity: %w", err)
		}
		// No address means a unix socket.
		t, ok := backendTime(pid)
		if addr != "" && !net.ParseIP(addr).IsLoopback() || !ok {
			return nil, nil
		}
		spent[pid] = t
	}
	return spent, rows.Err()
}

// ticks is the unit of /proc/PID/stat, USER_HZ, which Linux fixes at 100 on
// every architecture that Go runs on.
const ticks = time.Second / 100

// backendTime reads a server process's user and system time, fields 14 and 15
// of /proc/PID/stat (proc(5)).
func backendTime(pid int) (time.Duration, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	name, rest, ok := strings.Cut(string(text), ") ") // the name may hold spaces
	fields := strings.Fields(rest)
	if !ok || !strings.Contains(name, "(postgres") || len(fields) < 13 {
		return 0, false
	}
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	return time.Duration(user+system) * ticks, err1 == nil && err2 == nil
}

// memory is the host's resident memory in bytes: now, and at most since
// forgetPeak. Both are 0 where the system does not tell.
func memory() (now, peak int64) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch {
		case err != nil:
		case key == "VmRSS":
			now = n << 10
		case key == "VmHWM":
			peak = n << 10
		}
	}
	return now, peak
}

// forgetPeak sets the peak back to what is resident now (proc(5), clear_refs).
func forgetPeak() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// load is the machine's load average of the last minute, "" when unknown.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
