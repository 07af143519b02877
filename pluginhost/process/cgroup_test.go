package process_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/objecthost/objecthost/pluginhost/process"
)

// TestCgroup: nothing that a process starts gets past its bound or outlives it.
// Where this test may make no control groups, it is told why, and the bound is
// the system's own.
func TestCgroup(t *testing.T) {
	group, err := process.FindCgroup("")
	if err != nil {
		if group != nil || !strings.Contains(err.Error(), "control group") {
			t.Errorf("find = %v, %v", group, err)
		}
		return
	}
	before := groups(t)
	lines := make(chan string, 100)
	p := process.New(process.Spec{
		Name: "p", Path: "/bin/sh", Cgroup: group, Limits: process.Limits{Processes: 5},
		// Children in sessions of their own, until there may be no more.
		Args: []string{"-c", `i=0; while [ $i -lt 20 ]; do setsid sleep 1000 & echo $! >&2; i=$((i+1)); done; wait`},
		Line: func(l []byte, _ bool) { lines <- string(l) },
	})
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var children []int
	for line := range lines {
		child, err := strconv.Atoi(line)
		if err != nil { // Cannot fork
			break
		}
		children = append(children, child)
	}
	if len(children) == 0 || len(children) > 4 {
		t.Errorf("%d children with a bound of 5", len(children))
	}
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Leftover(); err != nil {
		t.Errorf("left over: %v", err)
	}
	for _, child := range children {
		eventually(t, func() bool { return !alive(child) })
	}
	if after := groups(t); after != before {
		t.Errorf("%d groups, before %d", after, before)
	}
}

// TestCgroupOf: a folder that is none is refused.
func TestCgroupOf(t *testing.T) {
	if _, err := process.FindCgroup(filepath.Join(t.TempDir(), "nothing")); err == nil {
		t.Error("a folder that is not there was taken for a control group")
	}
}

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); {
		if time.Now().After(deadline) {
			t.Fatal("not within 30 s")
		}
		timer := time.NewTimer(2 * time.Millisecond)
		<-timer.C
	}
}

func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(text), ") Z ")
}

// groups counts the control groups of this process's children.
func groups(t *testing.T) int {
	t.Helper()
	n := 0
	for _, pattern := range []string{"/sys/fs/cgroup/objecthost-*", "/sys/fs/cgroup/*/objecthost-*", "/sys/fs/cgroup/*/*/objecthost-*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.Contains(path, "objecthost-"+strconv.Itoa(os.Getpid())+"-") {
				n++
			}
		}
	}
	return n
}
