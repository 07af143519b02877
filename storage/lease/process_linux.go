package lease

import (
	"fmt"
	"os"
	"strings"
)

// self identifies this process among all that ever ran on this machine: the
// boot, the namespace of process ids, the id, and when the process began.
func self() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	pid := os.Getpid()
	began, _ := startOf(pid)
	if began == "" {
		return ""
	}
	return fmt.Sprintf("%s %s %d %s", strings.TrimSpace(string(boot)), space, pid, began)
}

// ended tells that a process identified by another call of self ran where this
// one runs, and runs no more. It is false whenever that cannot be told.
func ended(process string) bool {
	here := strings.Fields(self())
	there := strings.Fields(process)
	if len(here) != 4 || len(there) != 4 || here[0] != there[0] || here[1] != there[1] {
		return false
	}
	var pid int
	if _, err := fmt.Sscanf(there[2], "%d", &pid); err != nil {
		return false
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil {
		return os.IsNotExist(err)
	}
	began, zombie := startOf(pid)
	return zombie || began != "" && began != there[3]
}

// startOf is the start of a process in clock ticks since the boot, field 22 of
// proc(5)'s stat; empty when it cannot be read. A zombie has ended, but its
// parent has not asked for its status yet.
func startOf(pid int) (began string, zombie bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false
	}
	// The name in parentheses may hold anything, spaces included.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return "", false
	}
	return fields[19], fields[0] == "Z"
}
