package process

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// groupPrefix begins the names of the groups of all hosts.
const groupPrefix = "objecthost-"

// Cgroup is a control group of Linux in which each process gets a group of its
// own, with a bound on the number of tasks that no member can leave, root's
// included.
type Cgroup struct {
	dir string
	// two tells version 2, which can start a process in a group and kill a group
	// in one step. For version 1 home is the group that this process is in.
	two  bool
	home string
}

// numbers counts the groups of this process.
var numbers atomic.Uint64

// FindCgroup returns the group to make groups in: dir, or, when that is "", the
// one that this process is in, of version 2 or of version 1's pids. The error
// tells why there is none that can be used.
func FindCgroup(dir string) (*Cgroup, error) {
	if dir != "" {
		return usable(dir)
	}
	two, one, err := ownGroups()
	if err != nil {
		return nil, err
	}
	errs := []error{errors.New("process: this process is in no control group that counts tasks")}
	for _, dir := range []string{two, one} {
		if dir == "" {
			continue
		}
		g, err := usable(dir)
		if err == nil {
			return g, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// usable tries out whether groups with a bound can be made in dir.
func usable(dir string) (*Cgroup, error) {
	g := &Cgroup{dir: dir}
	if _, err := os.Stat(filepath.Join(dir, "cgroup.controllers")); err == nil {
		g.two = true
		// The controller may be on already; if not and this fails, so does the
		// trial.
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+pids"), 0)
	}
	trial, err := g.group(16)
	if err != nil {
		return nil, fmt.Errorf("process: control group %s: %w", dir, err)
	}
	err = trial.remove()
	if err == nil && !g.two {
		_, g.home, err = ownGroups()
	}
	return g, err
}

// ownGroups finds the groups of this process: by version 2 and by version 1's
// controller pids, "" for none.
func ownGroups() (two, one string, err error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", "", err
	}
	paths := map[string]string{}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for _, controller := range strings.Split(parts[1], ",") {
			paths[controller] = parts[2]
		}
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", "", err
	}
	defer mounts.Close()
	for in := bufio.NewScanner(mounts); in.Scan(); {
		// id parent dev root mountpoint options … - type source superoptions
		before, after, _ := strings.Cut(in.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if len(left) < 5 || len(right) < 3 {
			continue
		}
		// In a container the mount may show a part of the tree only.
		place := func(path string) string {
			return filepath.Join(left[4], strings.TrimPrefix(path, strings.TrimSuffix(left[3], "/")))
		}
		pids, hasPids := paths["pids"]
		unified, hasUnified := paths[""]
		switch {
		case right[0] == "cgroup2" && hasUnified && two == "":
			two = place(unified)
		case right[0] == "cgroup" && hasPids && one == "" && strings.Contains(","+right[2]+",", ",pids,"):
			one = place(pids)
		}
	}
	return two, one, nil
}

// group is the control group of one process.
type group struct {
	dir, home string
	two       bool
}

// group makes a group for one process with a bound on its tasks, 0 for none.
func (c *Cgroup) group(tasks uint64) (*group, error) {
	name := fmt.Sprintf("%s%d-%d", groupPrefix, os.Getpid(), numbers.Add(1))
	g := &group{dir: filepath.Join(c.dir, name), home: c.home, two: c.two}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, err
	}
	limit := "max"
	if tasks > 0 {
		limit = strconv.FormatUint(tasks, 10)
	}
	if err := os.WriteFile(filepath.Join(g.dir, "pids.max"), []byte(limit), 0); err != nil {
		return nil, errors.Join(err, g.remove())
	}
	return g, nil
}

// start starts a command as a member of the group from its first instruction
// on. It is called on a locked thread: in version 1 the thread itself goes into
// the group for the moment of the fork.
func (g *group) start(cmd *exec.Cmd) error {
	if g == nil {
		return cmd.Start()
	}
	if g.two {
		folder, err := os.Open(g.dir)
		if err != nil {
			return err
		}
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(folder.Fd())
		return errors.Join(cmd.Start(), folder.Close())
	}
	move := func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "tasks"), []byte(strconv.Itoa(unix.Gettid())), 0)
	}
	if err := move(g.dir); err != nil {
		return err
	}
	err := cmd.Start()
	if back := move(g.home); back != nil && err == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return back
	}
	return err
}

// kill ends every member, whatever process group or session it moved to.
func (g *group) kill() {
	if g == nil || g.two && os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0) == nil {
		return
	}
	for range 100 { // members may still start others
		text, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
		pids := strings.Fields(string(text))
		if err != nil || len(pids) == 0 {
			return
		}
		for _, raw := range pids {
			if pid, err := strconv.Atoi(raw); err == nil && pid > 0 {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		pause()
	}
}

// remove removes the group once its last member has been waited for, by whoever
// its parent is.
func (g *group) remove() error {
	if g == nil {
		return nil
	}
	var err error
	for range 1000 {
		if err = os.Remove(g.dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		pause()
	}
	return err
}

func pause() {
	timer := time.NewTimer(time.Millisecond)
	<-timer.C
}

// Sweep ends what hosts left in their groups that were killed.
func (c *Cgroup) Sweep() error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), groupPrefix)
		owner, _, _ := strings.Cut(rest, "-")
		host, err := strconv.Atoi(owner)
		if !ours || err != nil || host <= 0 || !errors.Is(unix.Kill(host, 0), unix.ESRCH) {
			continue
		}
		g := &group{dir: filepath.Join(c.dir, e.Name()), two: c.two}
		g.kill()
		errs = append(errs, g.remove())
	}
	return errors.Join(errs...)
}
