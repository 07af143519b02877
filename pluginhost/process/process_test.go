package process_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/objecthost/objecthost/pluginhost/process"
)

func shell(script string, line func(string, bool)) *process.Process {
	if line == nil {
		line = func(string, bool) {}
	}
	return process.New(process.Spec{Name: "p", Path: "/bin/sh", Args: []string{"-c", script}, Line: func(l []byte, cut bool) { line(string(l), cut) }})
}

func TestKilledBeforeItsStart(t *testing.T) {
	p := shell("sleep 1000", nil)
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context()); err == nil || p.PID() != 0 {
		t.Errorf("start after kill = %v, process %d", err, p.PID())
	}
	if text, err := io.ReadAll(p.Stdout()); len(text) != 0 || err != nil {
		t.Errorf("stdout = %q, %v", text, err)
	}
}

func TestOutput(t *testing.T) {
	var lines []string
	var cuts int
	p := shell(`printf 'noise '; echo '1|1|unix|/s|grpc|'; echo later; echo one >&2; head -c 200000 /dev/zero | tr '\0' x >&2; echo >&2; printf two >&2; exit 3`,
		func(l string, cut bool) {
			if cut {
				cuts++
			}
			lines = append(lines, l)
		})
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(p.Stdout())
	if string(text) != "1|1|unix|/s|grpc|\n" || err != nil {
		t.Errorf("stdout = %q, %v", text, err)
	}
	if err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.Noise() != "noise " || p.ExitError() == nil || p.ExitError().Error() != "exit status 3" {
		t.Errorf("noise %q, exit %v", p.Noise(), p.ExitError())
	}
	if len(lines) != 3 || lines[0] != "one" || lines[1] != strings.Repeat("x", process.MaxLine) || lines[2] != "two" || cuts != 1 {
		t.Errorf("%d lines, %d cut", len(lines), cuts)
	}
	if err := p.Kill(t.Context()); err != nil {
		t.Errorf("kill after the end = %v", err)
	}
}

func TestLimits(t *testing.T) {
	p := process.New(process.Spec{
		Name: "p", Path: "/bin/sh", Args: []string{"-c", "read x"}, Line: func([]byte, bool) {},
		Limits: process.Limits{Files: 77, Memory: 1 << 30, CPU: time.Hour, Processes: 1234},
	})
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`Max open files +77 +77 `, `Max data size +1073741824 +1073741824 `, `Max cpu time +3600 +3600 `, `Max core file size +0 +0 `, `Max processes +1234 +1234 `} {
		if !regexp.MustCompile(want).Match(text) {
			t.Errorf("limits do not hold %q:\n%s", want, text)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Wait(ctx); err == nil {
		t.Error("it ended although its input is open")
	}
	p.Terminate()
	if err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}
