package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Report is the result of a run.
type Report struct {
	// Acknowledged counts changes whose API call answered, Arrivals the requests
	// that the receiver got.
	Acknowledged, Arrivals int
	// Lost counts acknowledged changes that a webhook's receiver never answered
	// with success, Altered requests whose signature or bytes are wrong, Stray
	// requests that came again without need, Disordered those that came before
	// their turn, OverLimit those above a cap or rate, Late the takeovers that took
	// longer than a lease or missed a range.
	Lost, Altered, Stray, Disordered, OverLimit, Late int
	// Duplicates counts requests that came again because they were in flight when
	// their host was hit, Queued those whose rows were in flight then, but which
	// were sent afterwards.
	Duplicates, Queued int
	// Faults counts the faults by their kind, Takeovers holds the time of each
	// until all ranges of the host were served by others.
	Faults    map[string]int
	Takeovers map[string][]time.Duration
	// InFlightLate is the longest time from the end of a claim until its row was
	// sent by another host.
	InFlightLate time.Duration
	// Details says more about what is wrong, in so many lines at most.
	Details []string
}

// maxDetails bounds Report.Details.
const maxDetails = 30

func newReport() *Report {
	return &Report{Faults: make(map[string]int), Takeovers: make(map[string][]time.Duration)}
}

func (r *Report) blame(format string, args ...any) {
	if len(r.Details) < maxDetails {
		r.Details = append(r.Details, fmt.Sprintf(format, args...))
	}
}

// OK tells that no promise was broken.
func (r *Report) OK() bool {
	return r.Lost+r.Altered+r.Stray+r.Disordered+r.OverLimit+r.Late == 0
}

// Line is the report as one line, which begins with OK or FAILED.
func (r *Report) Line() string {
	verdict := "OK"
	if !r.OK() {
		verdict = "FAILED"
	}
	line := fmt.Sprintf("%s lost=%d altered=%d stray_duplicates=%d disordered=%d over_limit=%d late_takeovers=%d acknowledged=%d arrivals=%d duplicates=%d duplicates_sent_later=%d",
		verdict, r.Lost, r.Altered, r.Stray, r.Disordered, r.OverLimit, r.Late, r.Acknowledged, r.Arrivals, r.Duplicates, r.Queued)
	for _, kind := range Kinds {
		if n := r.Faults[kind]; n > 0 {
			line += fmt.Sprintf(" %s=%d", kind, n)
		}
		if times := r.Takeovers[kind]; len(times) > 0 {
			line += fmt.Sprintf(" %s_takeover_max=%.1fs", kind, slices.Max(times).Seconds())
		}
	}
	if r.InFlightLate > 0 {
		line += fmt.Sprintf(" in_flight_after_claim_max=%.1fs", r.InFlightLate.Seconds())
	}
	return line
}

// Text is the line, after the details of what is wrong.
func (r *Report) Text() string { return strings.Join(append(slices.Clone(r.Details), r.Line()), "\n") }
