package automation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/objecthost/objecthost/services/data"
)

// binding is what starts a flow by itself.
type binding struct {
	// object, before and operations belong to record changes.
	object     string
	before     bool
	operations []data.Operation
	schedule   *schedule
	// hook is the id of an api hook; secret signs its calls.
	hook, secret string
}

// schedule is one of cron, interval and once.
type schedule struct {
	source   string
	cron     cron.Schedule
	location *time.Location
	interval time.Duration
	at       time.Time
}

// next is the first time after t, zero for never.
func (s *schedule) next(t time.Time) time.Time {
	switch {
	case s.cron != nil:
		return s.cron.Next(t.In(s.location))
	case s.interval > 0:
		return t.Add(s.interval)
	case s.at.After(t):
		return s.at
	}
	return time.Time{}
}

// defaultHook names the hook of a flow of type api that gives it no id.
const defaultHook = "default"

var (
	triggerForm = regexp.MustCompile(`^record-(before|after)-(create|insert|update|delete|write)$`)
	operations  = map[string][]data.Operation{
		"create": {data.OpCreate}, "insert": {data.OpCreate}, "update": {data.OpUpdate}, "delete": {data.OpDelete},
		"write": {data.OpCreate, data.OpUpdate},
	}
	cronParser = cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)
)

func (c *compiler) binding(config map[string]any, path string) *binding {
	b := &binding{}
	object, _ := config["objectName"].(string)
	trigger, _ := config["triggerType"].(string)
	kind := c.flow.def.Type
	if kind == TypeRecordChange || trigger != "" {
		if object == "" {
			c.add(path+".objectName", codeRequired, "A record change needs the object")
		}
		form := triggerForm.FindStringSubmatch(trigger)
		if form == nil {
			c.add(path+".triggerType", codeInvalidOption, "Must be record-(before|after)-(create|insert|update|delete|write)")
		} else {
			b.object, b.before, b.operations = object, form[1] == "before", operations[form[2]]
		}
	}
	if value, given := config["schedule"]; given || kind == TypeSchedule {
		b.schedule = c.schedule(value, path+".schedule")
	}
	if kind == TypeAPI {
		hook, _ := config["hookId"].(string)
		b.hook = cmp.Or(hook, defaultHook)
		b.secret, _ = config["secret"].(string)
		if !nodeID.MatchString(b.hook) {
			c.add(path+".hookId", codeInvalidFormat, "Must match ^[A-Za-z0-9_$][A-Za-z0-9_$-]*$")
		}
		if b.secret != "" && len(b.secret) < 8 {
			c.add(path+".secret", codeInvalidValue, "Must have at least 8 characters")
		}
	}
	return b
}

func (c *compiler) schedule(value any, path string) *schedule {
	if text, ok := value.(string); ok {
		return c.cron(text, "", path)
	}
	m, ok := value.(map[string]any)
	if !ok {
		c.add(path, codeRequired, "Must be a cron expression, or an object of type cron, interval or once")
		return nil
	}
	switch c.option(m, path, "type", "", "cron", "interval", "once") {
	case "cron":
		c.unknown(m, path, "type", "expression", "timezone")
		return c.cron(c.text(m, path, "expression", true), c.text(m, path, "timezone", false), path+".expression")
	case "interval":
		c.unknown(m, path, "type", "intervalMs")
		ms := c.integer(m, path, "intervalMs", 0, 1000, 366*24*3600*1000)
		if _, given := m["intervalMs"]; !given {
			c.add(path+".intervalMs", codeRequired, "Invalid input: expected number, received undefined")
		}
		return &schedule{source: fmt.Sprintf("every %dms", ms), interval: time.Duration(ms) * time.Millisecond}
	case "once":
		c.unknown(m, path, "type", "at")
		text := c.text(m, path, "at", true)
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil && text != "" {
			c.add(path+".at", codeInvalidFormat, "Must be a time such as 2026-01-31T08:00:00Z")
		}
		return &schedule{source: "at " + text, at: at}
	}
	return nil
}

func (c *compiler) cron(text, zone, path string) *schedule {
	s := &schedule{source: "cron " + text + " " + zone, location: time.UTC}
	if strings.Contains(text, "TZ=") {
		c.add(path, codeInvalidFormat, "Give the time zone as timezone")
		return nil
	}
	parsed, err := cronParser.Parse(text)
	if err != nil {
		c.add(path, codeInvalidFormat, "Not a cron expression: %s", err.Error())
		return nil
	}
	if zone != "" {
		if s.location, err = time.LoadLocation(zone); err != nil || zone == "Local" {
			c.add(strings.TrimSuffix(path, ".expression")+".timezone", codeInvalidValue, "There is no time zone %q", zone)
			return nil
		}
	}
	if s.cron = parsed; parsed.Next(time.Now()).IsZero() {
		c.add(path, codeInvalidValue, "The expression never comes true")
	}
	return s
}

var isoDuration = regexp.MustCompile(`^P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?$`)

// maxWait bounds timers and everything else that is a time.
const maxWait = 10 * 366 * 24 * time.Hour

// parseDuration reads an ISO 8601 duration of weeks to seconds, or a number of
// milliseconds.
func parseDuration(text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	wrong := fmt.Errorf("%q is neither a duration such as PT1H nor a number of milliseconds, up to ten years", shorten(text, 40))
	if ms, err := json.Number(text).Int64(); err == nil {
		if ms < 0 || ms > maxWait.Milliseconds() {
			return 0, wrong
		}
		return time.Duration(ms) * time.Millisecond, nil
	}
	m := isoDuration.FindStringSubmatch(text)
	if m == nil || strings.HasSuffix(text, "T") || text == "P" {
		return 0, wrong
	}
	total := 0.0
	for i, unit := range []time.Duration{7 * 24 * time.Hour, 24 * time.Hour, time.Hour, time.Minute, time.Second} {
		if m[i+1] == "" {
			continue
		}
		n, err := strconv.ParseFloat(m[i+1], 64)
		if err != nil {
			return 0, wrong
		}
		total += n * float64(unit)
	}
	if total > float64(maxWait) {
		return 0, wrong
	}
	return time.Duration(total).Round(time.Millisecond), nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
