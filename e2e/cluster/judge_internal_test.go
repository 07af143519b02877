package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/objecthost/objecthost/e2e/receiver"
	"github.com/objecthost/objecthost/storage/lease"
)

// scene is a run of which the judge is told: one record with two changes, sent
// to one webhook, and a fault of host 0 at second 10, which holds range 0.
type scene struct {
	*runner
	rows     map[string]*row
	arrivals []receiver.Arrival
	fault    *fault
}

var began = time.Unix(1_000_000, 0)

func at(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }

func newScene() *scene {
	s := &scene{runner: &runner{cfg: Config{Grace: time.Second}, writers: newWriters(nil)}, rows: make(map[string]*row)}
	s.fault = &fault{kind: Kill, start: at(10), healed: at(30), ranges: 1, claims: map[string]claim{"d1": {node: 0, end: at(24)}}}
	s.faults = []*fault{s.fault}
	s.change("m1", "d1")
	s.change("m2", "d2")
	return s
}

// change is one that is acknowledged, and its delivery in partition 0.
func (s *scene) change(mark, delivery string) {
	s.writers.changes[mark] = &change{object: "none", action: "created", acknowledged: true}
	s.rows[delivery] = &row{status: "success", target: 1, attempts: make(map[int]attempt)}
}

// arrive is a request that was answered 200.
func (s *scene) arrive(seconds float64, node int, delivery string, edit ...func(*receiver.Arrival)) {
	n := int64(delivery[1] - '0')
	a := receiver.Arrival{
		Number: len(s.arrivals), Delivery: delivery, Attempt: 1, Path: "/record", Record: "r", Action: "created",
		Mark: fmt.Sprintf("m%d", n), Sequence: n, Sum: delivery, Verified: true, Node: node, At: at(seconds), Open: 1, Status: 200,
	}
	for _, e := range edit {
		e(&a)
	}
	s.arrivals = append(s.arrivals, a)
}

func second(a *receiver.Arrival)   { a.Attempt = 2 }
func failed(a *receiver.Arrival)   { a.Status = 503 }
func forged(a *receiver.Arrival)   { a.Verified = false }
func changed(a *receiver.Arrival)  { a.Sum = "other" }
func blocking(a *receiver.Arrival) { a.Path = "/blocking" }
func few(a *receiver.Arrival)      { a.Path, a.Open = "/few", 3 }

// A judge that finds nothing would be of no use: each broken promise is one
// line in the report, and what is allowed is none.
func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		tell func(*scene)
		want Report
	}{
		"taken over in time": {func(s *scene) {
			s.arrive(9, 0, "d1")
			s.arrive(20, 1, "d2")
			s.arrive(24, 1, "d1")
		}, Report{Duplicates: 1, Disordered: 0}},
		"taken over too late": {func(s *scene) {
			s.arrive(21.5, 1, "d2", func(a *receiver.Arrival) { a.Record = "q" })
		}, Report{Late: 1}},
		"never taken over": {func(*scene) {}, Report{Late: 1}},
		"sent again before the claim's end": {func(s *scene) {
			s.arrive(9, 0, "d1")
			s.arrive(20, 1, "d2")
			s.arrive(23.9, 1, "d1")
		}, Report{Duplicates: 1, Stray: 1}},
		"sent again long after the claim's end": {func(s *scene) {
			s.arrive(9, 0, "d1")
			s.arrive(20, 1, "d2")
			s.arrive(29.1, 1, "d1")
		}, Report{Duplicates: 1, Late: 1}},
		"sent again twice": {func(s *scene) {
			s.arrive(9, 0, "d1")
			s.arrive(20, 1, "d2")
			s.arrive(24, 1, "d1")
			s.arrive(25, 1, "d1")
		}, Report{Duplicates: 1, Stray: 2}}, // after the first and after the second
		"sent again by a host that no fault hit": {func(s *scene) {
			s.arrive(9, 1, "d1")
			s.arrive(9.5, 2, "d1")
			s.arrive(20, 1, "d2")
		}, Report{Stray: 1}},
		"sent again though not in flight": {func(s *scene) {
			s.arrive(9, 0, "d2")
			s.arrive(20, 1, "d2")
		}, Report{Stray: 1}},
		"sent late by the host that was hit": {func(s *scene) {
			s.arrive(20, 1, "d2")
			s.arrive(24, 1, "d1")
			s.arrive(24.1, 0, "d1")
		}, Report{Stray: 1, Disordered: 1}},
		"sent after the cut, out of a claim": {func(s *scene) {
			s.arrive(12, 0, "d1")
			s.arrive(20, 1, "d2")
			s.arrive(24, 1, "d1")
		}, Report{Duplicates: 0, Queued: 1}},
		"another attempt after a success": {func(s *scene) {
			clear(s.fault.claims)
			s.arrive(9, 1, "d1")
			s.arrive(10.5, 1, "d1", second)
			s.arrive(20, 1, "d2")
		}, Report{Stray: 1}},
		"another attempt after an answer that was not heard": {func(s *scene) {
			clear(s.fault.claims)
			s.arrive(9, 1, "d1")
			s.rows["d1"].attempts[1] = attempt{node: 1}
			s.arrive(10.5, 1, "d1", second)
			s.arrive(20, 1, "d2")
		}, Report{}},
		"another attempt after a failure": {func(s *scene) {
			clear(s.fault.claims)
			s.arrive(9, 1, "d1", failed)
			s.arrive(10.5, 1, "d1", second)
			s.arrive(20, 1, "d2")
		}, Report{}},
		"out of order": {func(s *scene) {
			s.arrive(20, 1, "d2")
			s.arrive(24, 1, "d1")
		}, Report{Disordered: 1}},
		"a retry that blocks out of order": {func(s *scene) {
			s.arrive(9, 1, "d1", blocking, failed)
			s.arrive(20, 1, "d2", blocking)
			s.arrive(24, 1, "d1", blocking, second)
		}, Report{Disordered: 1}},
		"a retry that does not block": {func(s *scene) {
			s.arrive(9, 1, "d1", failed)
			s.arrive(20, 1, "d2")
			s.arrive(24, 1, "d1", second)
		}, Report{}},
		"forged": {func(s *scene) { s.arrive(20, 1, "d2", forged) }, Report{Altered: 1}},
		"other bytes": {func(s *scene) {
			s.arrive(9, 0, "d1")
			s.arrive(20, 1, "d2")
			s.arrive(24, 1, "d1", changed)
		}, Report{Altered: 1, Duplicates: 1}},
		"two deliveries of one change": {func(s *scene) {
			s.arrive(9, 1, "d1")
			s.arrive(20, 1, "d2", func(a *receiver.Arrival) { a.Mark = "m1" })
		}, Report{Stray: 1}},
		"too many at once": {func(s *scene) {
			s.arrive(20, 1, "d2", few, func(*receiver.Arrival) { s.rows["d2"].target = 0 })
		}, Report{OverLimit: 1}},
		"lost": {func(s *scene) {
			s.arrive(20, 1, "d2", func(a *receiver.Arrival) { a.Path = "/serial" })
			s.rows["d2"].target = 0
			s.writers.changes["m2"].object = "ticket"
		}, Report{Lost: 1}}, // for /rate
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			c.tell(s)
			got := s.decide(s.rows, s.arrivals)
			numbers := func(r Report) string {
				return fmt.Sprintf("lost %d, altered %d, stray %d, disordered %d, over limit %d, late %d, duplicates %d, queued %d",
					r.Lost, r.Altered, r.Stray, r.Disordered, r.OverLimit, r.Late, r.Duplicates, r.Queued)
			}
			if numbers(*got) != numbers(c.want) {
				t.Errorf("judged %s\n  want %s\n%s", numbers(*got), numbers(c.want), got.Text())
			}
			if broken := c.want.Lost+c.want.Altered+c.want.Stray+c.want.Disordered+c.want.OverLimit+c.want.Late > 0; got.OK() == broken {
				t.Errorf("OK is %t", got.OK())
			}
		})
	}
}

// A rate is for all hosts together; who takes over begins with a full burst.
func TestJudgeOfRates(t *testing.T) {
	for name, c := range map[string]struct {
		perSecond float64
		nodes     int
		broken    bool
	}{"at the rate": {12, 1, false}, "of three hosts": {36, 3, true}, "of one host": {14, 1, true}} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			s.faults = nil
			for n := range 300 {
				s.arrive(float64(n)/c.perSecond, n*c.nodes/300, "d1", func(a *receiver.Arrival) { a.Path = "/rate" })
			}
			j := &judge{r: s.runner, rows: s.rows, report: newReport()}
			for i := range hooks {
				j.limits(&hooks[i], s.arrivals)
			}
			if got := j.report.OverLimit > 0; got != c.broken {
				t.Errorf("above the rate: %t, want %t", got, c.broken)
			}
		})
	}
}

func TestRangesOfHooks(t *testing.T) {
	r := &row{partition: 255, target: 17}
	for _, h := range hooks {
		want := lease.Ranges - 1
		if h.home {
			want = 1
		}
		if got := rangeOf(h.path, r); got != want {
			t.Errorf("%s is served by range %d, want %d", h.path, got, want)
		}
	}
}
