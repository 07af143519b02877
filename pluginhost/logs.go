package pluginhost

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// logRing is how many lines of a plugin's log are kept for the operator.
	logRing = 500
	// logRate and logBurst bound the lines per second that go into the host's
	// log; the ring gets the same.
	logRate, logBurst = 200, 1000
	// maxPanic bounds what is kept of a panic.
	maxPanic = 8 << 10
	// maxText bounds one line in the host's log.
	maxText = 8 << 10
)

// pluginLog reads the log of a plugin, over all its generations.
type pluginLog struct {
	log *slog.Logger
	now func() time.Time

	mu      sync.Mutex
	ring    []string
	lines   int64
	dropped int64
	tokens  float64
	at      time.Time
	told    int64 // how many of dropped were reported
	panics  strings.Builder
	dying   bool
	// followers get the lines that are kept, as long as they take them.
	followers map[chan string]bool
}

func newPluginLog(log *slog.Logger) *pluginLog {
	return &pluginLog{log: log, now: time.Now, tokens: logBurst}
}

// begin forgets the panic of the generation before.
func (l *pluginLog) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dying = false
}

// line takes one line of standard error. Nothing in it can fail: what is not
// understood is text.
func (l *pluginLog) line(pid, generation int, line []byte, cut bool) {
	text := strings.ToValidUTF8(string(line), "\uFFFD")
	if !l.admit(text) {
		return
	}
	level, message, attrs := parseLine(text)
	if cut {
		attrs = append(attrs, slog.Bool("cut", true))
	}
	attrs = append(attrs, slog.Int("pid", pid), slog.Int("generation", generation))
	l.log.LogAttrs(context.Background(), level, message, attrs...)
}

// admit counts the line, keeps it and tells whether it may be logged.
func (l *pluginLog) admit(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines++
	if strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ") {
		l.dying = true
		l.panics.Reset()
	}
	if l.dying && l.panics.Len() < maxPanic {
		l.panics.WriteString(clip(text, maxPanic-l.panics.Len()) + "\n")
	}
	now := l.now()
	l.tokens = min(logBurst, l.tokens+now.Sub(l.at).Seconds()*logRate)
	l.at = now
	if l.tokens < 1 {
		l.dropped++
		return false
	}
	l.tokens--
	if missing := l.dropped - l.told; missing > 0 {
		l.told = l.dropped
		l.log.Warn("lines of a plugin's log were dropped, it writes too much", "dropped", missing)
	}
	if len(l.ring) == logRing {
		l.ring = slices.Delete(l.ring, 0, logRing/5)
	}
	l.ring = append(l.ring, clip(text, maxText))
	for f := range l.followers {
		select {
		case f <- clip(text, maxText):
		default:
		}
	}
	return true
}

// follow calls line with the last n lines and with those that come.
func (l *pluginLog) follow(ctx context.Context, n int, line func(string) error) error {
	coming := make(chan string, logRing)
	l.mu.Lock()
	lines := slices.Clone(l.ring[max(0, len(l.ring)-n):])
	if l.followers == nil {
		l.followers = map[chan string]bool{}
	}
	l.followers[coming] = true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.followers, coming)
	}()
	for _, text := range lines {
		if err := line(text); err != nil {
			return err
		}
	}
	for {
		select {
		case text := <-coming:
			if err := line(text); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// tail returns the last n lines, the panic of the last generation that died of
// one, and the counts.
func (l *pluginLog) tail(n int) (lines []string, panicked string, seen, dropped int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ring[max(0, len(l.ring)-n):]), l.panics.String(), l.lines, l.dropped
}

func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}

// parseLine understands JSON lines as log/slog and hclog write them. Values
// that are no JSON texts, numbers or booleans are kept as JSON.
func parseLine(text string) (level slog.Level, message string, attrs []slog.Attr) {
	level, message = slog.LevelInfo, clip(text, maxText)
	if strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ") {
		return slog.LevelError, message, nil
	}
	var fields map[string]json.RawMessage
	if !strings.HasPrefix(text, "{") || len(text) > maxText*4 || json.Unmarshal([]byte(text), &fields) != nil {
		return level, message, nil
	}
	found := false
	for _, key := range []string{"msg", "@message", "message"} {
		var s string
		if raw, ok := fields[key]; ok && json.Unmarshal(raw, &s) == nil {
			message, found = clip(s, maxText), true
			delete(fields, key)
			break
		}
	}
	if !found {
		return level, message, nil
	}
	for _, key := range []string{"level", "@level"} {
		var s string
		if raw, ok := fields[key]; ok && json.Unmarshal(raw, &s) == nil {
			if strings.EqualFold(s, "trace") {
				s = "DEBUG"
			}
			_ = level.UnmarshalText([]byte(s)) // an unknown level stays Info
			delete(fields, key)
		}
	}
	for _, key := range []string{"time", "@timestamp", "ts", "@module"} {
		delete(fields, key)
	}
	for key, raw := range fields {
		var s string
		if json.Unmarshal(raw, &s) != nil {
			s = string(raw)
		}
		attrs = append(attrs, slog.String("plugin_"+clip(key, 64), clip(s, 1024)))
		if len(attrs) == 32 {
			break
		}
	}
	return level, message, attrs
}
