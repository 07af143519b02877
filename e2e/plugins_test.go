package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/objecthost/objecthost/e2e/proc"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// TestPlugins runs the sample plugins, one in Go and one in Python, beside a host
// as an operator does: packed, signed, installed, configured, killed with the
// host, upgraded and uninstalled while it runs.
func TestPlugins(t *testing.T) {
	bin, err := proc.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dist := packPlugins(t, bin)
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		told := make(chan string, 10)
		receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			told <- string(body)
		}))
		defer receiver.Close()
		plugins := installPlugins(t, bin, dist)
		home := t.TempDir()
		write(t, filepath.Join(home, "host.yaml"), "plugins:\n  com.example.crm:\n    notify: "+receiver.URL+"/new\n")
		h := &flowHost{bin: bin, args: []string{
			"--db", dsn, "--listen", "127.0.0.1:0", "--config", filepath.Join(home, "host.yaml"),
			"--plugins", plugins, "--key-file", filepath.Join(home, "host.key"), "--egress-allow", "127.0.0.1",
		}}
		h.start(t)
		t.Cleanup(func() { h.Kill() })
		checkPlugins(t, h, told)
		checkFlowOfBoth(t, h)

		before := append(processes(t, h, "crm"), processes(t, h, "welcome")...)
		h.Kill()
		for _, pid := range before {
			until(t, fmt.Sprintf("the end of process %d", pid), func() bool { return !running(pid) })
		}
		h.start(t)
		checkFlowOfBoth(t, h)
		after := processes(t, h, "crm")
		if set := named(t, plugins); len(set) != 2 {
			t.Errorf("after the restart %d plugins run: %v", len(set), set)
		}

		env := []string{"HOST_URL=" + h.URL, "HOST_KEY=" + h.key}
		command(t, bin, env, `"generation": 2`, "plugin", "upgrade", "crm", filepath.Join(dist, "crm"), "--json")
		if running(after[0]) || !running(processes(t, h, "crm")[0]) {
			t.Error("after the upgrade the old process runs, or the new one does not")
		}
		checkFlowOfBoth(t, h)
		command(t, bin, env, "welcome is uninstalled", "plugin", "uninstall", "welcome")
		if set := named(t, plugins); len(set) != 1 {
			t.Errorf("after the uninstall %d plugins run: %v", len(set), set)
		}
		command(t, bin, env, "ready", "plugin", "install", filepath.Join(dist, "welcome"), "--grant")
		checkFlowOfBoth(t, h)
	})
}

// packPlugins makes signed bundles of the sample plugins and returns the folder
// that holds them and the public key.
func packPlugins(t *testing.T, bin string) string {
	t.Helper()
	dist := t.TempDir()
	examples := filepath.Join(proc.Root(), "examples")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dist, "crm", "plugin"), "./plugin-process")
	build.Dir = examples
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, out)
	}
	for _, name := range []string{"plugin.py", "plugin_pb2.py"} {
		text, err := os.ReadFile(filepath.Join(examples, "plugin-python", name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dist, "welcome", name), string(text))
	}
	if err := os.Chmod(filepath.Join(dist, "welcome", "plugin.py"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dist, "crm.json"), `{"objects":{"crm_account":"read"},"events":["data.record.created"],"hooks":["crm_account"],
		"egress":["127.0.0.1"],"provides":["crm.score"],"nodes":["crm.segment"],"routes":true}`)
	write(t, filepath.Join(dist, "welcome.json"), `{"objects":{"crm_account":"read","welcome_task":"write"},"events":["data.record.created"],
		"hooks":["crm_account"],"provides":["welcome.score"],"nodes":["welcome.greeting"],"routes":true}`)
	key := filepath.Join(dist, "acme")
	command(t, bin, nil, "", "plugin", "keygen", key)
	command(t, bin, nil, "crm 1.0.0", "plugin", "pack", filepath.Join(dist, "crm"), "--capabilities", filepath.Join(dist, "crm.json"), "--key", key+".key")
	command(t, bin, nil, "welcome 1.0.0", "plugin", "pack", filepath.Join(dist, "welcome"), "--program", "plugin.py", "--plain",
		"--capabilities", filepath.Join(dist, "welcome.json"), "--key", key+".key")
	return dist
}

// installPlugins makes a folder of plugins, whose path is short because sockets
// lie in it.
func installPlugins(t *testing.T, bin, dist string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ep") //nolint:usetesting // the paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	key, err := os.ReadFile(filepath.Join(dist, "acme.pub"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "trust", "acme.pub"), string(key))
	for _, name := range []string{"crm", "welcome"} {
		command(t, bin, nil, "signed by acme", "plugin", "install", filepath.Join(dist, name), "--plugins", dir, "--grant")
	}
	return dir
}

// checkPlugins makes an account and looks at what both plugins do about it.
func checkPlugins(t *testing.T, h *flowHost, told <-chan string) {
	t.Helper()
	made := h.call(t, http.MethodPost, "/data/crm_account", map[string]any{"name": " Ada ", "email": "Ada@Example.com"})
	record, _ := made["record"].(map[string]any)
	if record["name"] != "Ada" || record["email"] != "ada@example.com" {
		t.Errorf("the account is %v", record)
	}
	if status, body := h.ask(t, http.MethodPost, "/data/crm_account", `{"name":"Eve","email":"eve"}`); status != 400 || !strings.Contains(body, "no e-mail address") {
		t.Errorf("a bad address = %d %s", status, body)
	}
	select {
	case body := <-told:
		if !strings.Contains(body, `"ada@example.com"`) {
			t.Errorf("the delivery holds %s", body)
		}
	case <-time.After(wide):
		t.Fatalf("no delivery\n%s", h.Output())
	}
	id, _ := record["id"].(string)
	until(t, "the task of the Python plugin", func() bool {
		status, body := h.ask(t, http.MethodGet, "/data/welcome_task/"+id, "")
		return status == 200 && strings.Contains(body, "Welcome Ada")
	})
	for path, want := range map[string]string{"/plugins/crm/accounts/count": `"data":1`, "/plugins/welcome/greeting/Bob": "Hello Bob"} {
		if status, body := h.ask(t, http.MethodGet, path, ""); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s = %d %s", path, status, body)
		}
	}
}

// checkFlowOfBoth runs a flow with a node of each plugin.
func checkFlowOfBoth(t *testing.T, h *flowHost) {
	t.Helper()
	const flow = `{"name":"greet","label":"Greet","type":"autolaunched","status":"active",
		"variables":[{"name":"email","type":"text","isInput":true},{"name":"segment","type":"text","isOutput":true},{"name":"text","type":"text","isOutput":true}],
		"nodes":[{"id":"start","type":"start"},{"id":"sort","type":"crm.segment","config":{"email":"{email}"}},
			{"id":"greet","type":"welcome.greeting","config":{"name":"{sort.segment} customer","language":"de"}},
			{"id":"keep","type":"assignment","config":{"assignments":{"segment":"{sort.segment}","text":"{greet.text}"}}},{"id":"end","type":"end"}],
		"edges":[{"id":"a","source":"start","target":"sort"},{"id":"b","source":"sort","target":"greet"},{"id":"c","source":"greet","target":"keep"},{"id":"d","source":"keep","target":"end"}]}`
	if status, body := h.ask(t, http.MethodGet, "/automation/greet", ""); status == 404 {
		if status, body = h.ask(t, http.MethodPost, "/automation", flow); status != 200 {
			t.Fatalf("register the flow = %d %s", status, body)
		}
	} else if status != 200 {
		t.Fatalf("read the flow = %d %s", status, body)
	}
	status, body := h.ask(t, http.MethodPost, "/automation/greet/trigger", `{"params":{"email":"eve@gmail.com"}}`)
	if status != 200 || !strings.Contains(body, `"segment":"private"`) || !strings.Contains(body, `"text":"Hallo private customer"`) {
		t.Errorf("the flow = %d %s\n%s", status, body, h.Output())
	}
}

// ask makes a request whatever its answer's status.
func (h *flowHost) ask(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, h.URL+"/api/v1"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-API-Key", h.key)
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// processes is the process of a plugin.
func processes(t *testing.T, h *flowHost, plugin string) []int {
	t.Helper()
	pid, _ := h.call(t, http.MethodGet, "/system/plugins/"+plugin, nil)["pid"].(float64)
	if pid == 0 {
		t.Fatalf("the plugin %s has no process\n%s", plugin, h.Output())
	}
	return []int{int(pid)}
}

// named finds the processes that run from a folder of plugins.
func named(t *testing.T, dir string) (pids []int) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		cwd, err := os.Readlink(path)
		pid, convErr := strconv.Atoi(strings.Split(path, "/")[2])
		if err == nil && convErr == nil && strings.HasPrefix(cwd, dir+"/") && running(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// running tells whether a process is there and no zombie.
func running(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(wide); !holds(); pause(t) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// command runs the host's command line and wants a text in its output.
func command(t *testing.T, bin string, env []string, want string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wide)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
		t.Fatalf("host %s: %v\n%s\nwant %q", strings.Join(args, " "), err, out, want)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
