// Package automation runs flows: directed graphs of nodes that start by hand,
// on record changes, on a schedule or on a signed call, and that read and write
// records, call other systems and wait.
//
// A flow is authored as JSON (see [Definition]), checked as a whole when it is
// registered, and kept in the database in versions. A run keeps the version that
// it began with.
//
//	trigger ──► pending ──► running ──► completed
//	                          │  ▲  └──► failed
//	              suspension  ▼  │ timer, resume, delivery.finished
//	                         paused
//
// What is promised:
//
//   - The state of a run is saved when it suspends and after each side effect.
//     What a record node, a durable http node or a notify node does commits in
//     the transaction that saves the step, so that a run that goes on after a
//     crash does none of it twice.
//   - A node that calls out without the outbox (http inline) notes that it
//     begins. When the process dies before its end is saved, the flow's
//     errorHandling tries it again, or the run fails and names the node.
//   - A run is executed by one node of a cluster at a time: a claim with a token
//     and an end by the database's clock fences every save.
//   - Record changes start runs through a durable consumer of the event log:
//     a crash between the write and the run loses nothing. Runs of one flow for
//     one record go one after the other, in the order of the writes; what a run
//     itself writes to its record does not start it again.
//   - One node of a cluster fires a schedule: whoever moves its next time on,
//     in the transaction that adds the run.
//
// Where the code is: a flow's form in definition.go and validate.go, expressions
// in expression.go and template.go, the node types in node_*.go, the walk
// through a flow in walk.go with its saved form in state.go, what claims and
// starts runs in runner.go and trigger_*.go.
package automation
