package messaging

import "github.com/objecthost/objecthost/services/messaging/driver"

// Status is the state of a delivery.
type Status = driver.Status

// The states of a delivery.
const (
	StatusPending  = driver.Pending
	StatusInFlight = driver.InFlight
	StatusSuccess  = driver.Success
	StatusFailed   = driver.Failed
	StatusDead     = driver.Dead
)

// cause is what moves a delivery from one state to another.
type cause string

const (
	causeClaim     cause = "claim"
	causeOutcome   cause = "outcome"
	causeRelease   cause = "release"
	causeExpiry    cause = "expiry"
	causeCancel    cause = "cancel"
	causeSweep     cause = "sweep"
	causeRedeliver cause = "redeliver"
)

// transitions is the table of allowed state changes and what may cause them.
// A change that is not listed does not happen, whoever asks for it.
var transitions = map[Status]map[Status][]cause{
	StatusPending: {
		StatusInFlight: {causeClaim},
		StatusFailed:   {causeCancel, causeSweep},
	},
	StatusInFlight: {
		StatusSuccess: {causeOutcome},
		StatusFailed:  {causeOutcome},
		StatusDead:    {causeOutcome, causeExpiry},
		StatusPending: {causeOutcome, causeRelease, causeExpiry},
	},
	StatusSuccess: {StatusPending: {causeRedeliver}},
	StatusFailed:  {StatusPending: {causeRedeliver}},
	StatusDead:    {StatusPending: {causeRedeliver}},
}

// sources lists the states that a cause may lead away from to a state.
func sources(to Status, by cause) []Status {
	var from []Status
	for _, s := range []Status{StatusPending, StatusInFlight, StatusSuccess, StatusFailed, StatusDead} {
		for _, c := range transitions[s][to] {
			if c == by {
				from = append(from, s)
			}
		}
	}
	return from
}
