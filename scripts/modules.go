//go:build ignore

// Modules checks what holds the workspace together: every module of the
// repository is used by go.work and by nothing else, all have one go line, the
// siblings that a module requires are replaced by relative paths, and no two
// modules ask for different versions of one dependency. The tools module stands
// outside of all that.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
)

const prefix = "github.com/objecthost/objecthost/"

// module is what go mod edit -json and go work edit -json print.
type module struct {
	Module  struct{ Path string }
	Go      string
	Require []struct{ Path, Version string }
	Replace []struct{ Old, New struct{ Path string } }
	Use     []struct{ DiskPath string }
}

func main() {
	faults, count, err := check()
	if err != nil {
		fmt.Fprintln(os.Stderr, "modules:", err)
		os.Exit(1)
	}
	for _, f := range faults {
		fmt.Println("modules:", f)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
	fmt.Printf("modules: %d modules agree\n", count)
}

func check() (faults []string, count int, err error) {
	work, err := edit("work", "go.work")
	if err != nil {
		return nil, 0, err
	}
	used := map[string]bool{}
	for _, u := range work.Use {
		used[filepath.Clean(u.DiskPath)] = true
	}
	out, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "go.mod", "*/go.mod").Output()
	if err != nil {
		return nil, 0, fmt.Errorf("list go.mod files: %w", err)
	}
	versions := map[string]map[string][]string{} // path, version, folders
	for _, file := range strings.Fields(string(out)) {
		folder := filepath.Dir(file)
		if folder == "tools" || strings.Contains(file, "testdata/") {
			continue
		}
		m, err := edit("mod", file)
		if err != nil {
			return nil, 0, err
		}
		count++
		faults = append(faults, m.check(folder, work.Go, used[folder])...)
		for _, r := range m.Require {
			if versions[r.Path] == nil {
				versions[r.Path] = map[string][]string{}
			}
			versions[r.Path][r.Version] = append(versions[r.Path][r.Version], folder)
		}
	}
	faults = append(faults, skew(versions)...)
	if count != len(used) {
		faults = append(faults, fmt.Sprintf("go.work uses %d modules, the tree has %d", len(used), count))
	}
	return faults, count, nil
}

// check looks at one module by itself.
func (m module) check(folder, goLine string, used bool) (faults []string) {
	if want := prefix + filepath.ToSlash(folder); m.Module.Path != want {
		faults = append(faults, fmt.Sprintf("%s: the module is called %s, not %s", folder, m.Module.Path, want))
	}
	if m.Go != goLine {
		faults = append(faults, fmt.Sprintf("%s: go %s, but go.work says go %s", folder, m.Go, goLine))
	}
	if !used {
		faults = append(faults, fmt.Sprintf("%s: not in go.work", folder))
	}
	replaced := map[string]string{}
	for _, r := range m.Replace {
		replaced[r.Old.Path] = r.New.Path
	}
	for _, r := range m.Require {
		sibling, ok := strings.CutPrefix(r.Path, prefix)
		if !ok {
			continue
		}
		if r.Version != "v0.0.0" {
			faults = append(faults, fmt.Sprintf("%s: requires %s %s instead of v0.0.0", folder, r.Path, r.Version))
		}
		if filepath.ToSlash(filepath.Join(folder, replaced[r.Path])) != sibling {
			faults = append(faults, fmt.Sprintf("%s: %s is replaced by %q, which is not its folder", folder, r.Path, replaced[r.Path]))
		}
	}
	return faults
}

// skew names every dependency that two modules want in different versions.
func skew(versions map[string]map[string][]string) (faults []string) {
	for path, byVersion := range versions {
		if len(byVersion) < 2 {
			continue
		}
		var parts []string
		for v, folders := range byVersion {
			parts = append(parts, v+" in "+strings.Join(folders, ", "))
		}
		sort.Strings(parts)
		faults = append(faults, path+": "+strings.Join(parts, "; "))
	}
	sort.Strings(faults)
	return faults
}

func edit(kind, file string) (m module, err error) {
	out, err := exec.Command("go", kind, "edit", "-json", file).Output()
	if err != nil {
		return m, fmt.Errorf("read %s: %w", file, err)
	}
	return m, json.Unmarshal(out, &m)
}
