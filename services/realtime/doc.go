// Package realtime is the event log: events are appended in the transaction
// of the write that they tell about, and read by named durable consumers and
// by subscribers in the process.
//
//	┌─ one transaction ─────────┐            ┌─ one transaction ────────┐
//	│ record write, Append ─────┼─► log ─┬─► │ handler's writes, position│  Consume
//	└───────────────────────────┘        │   └──────────────────────────┘
//	                                     └─► bounded queue ─► handler       Subscribe
//
// # What is promised
//
//   - An event is in the log exactly when its transaction committed.
//   - A durable consumer gets every event that was committed after it was
//     registered. Its position moves in the transaction that its handler writes
//     in, so the effects of the handler in the same database happen exactly
//     once, whatever crashes when and on however many nodes the consumer runs.
//   - No event is skipped because its transaction committed later than others
//     with higher sequences, and nobody waits for transactions that are open:
//     neither writers for each other nor consumers for writers. The events of a
//     transaction that commits late arrive late.
//   - Events of one record arrive in the order of their writes, provided that a
//     writer holds the record's lock when it appends, as the data service does.
//     Over different records sequences are no order.
//   - An event that its consumer can't handle is isolated by halving the batch,
//     retried with growing pauses, and reported ([Service.Stuck]). Later
//     events of the same range wait behind it until it is handled or [Service.Skip]
//     passes it; nothing is skipped on its own.
//   - Retention removes only what every enabled consumer has handled.
//   - Subscribers are a convenience: they get events after their commit, in
//     the log's order, from all nodes, while they are subscribed. What a slow
//     one can't take is dropped and reported to it. Writers never wait for them.
//
// Consumers and subscribers are woken when a transaction commits, on other
// nodes through a fanout where there is one. Consumers also look by themselves,
// at intervals that adapt to what they find, which is how the writes of nodes
// without a fanout and lost wake-ups are found.
package realtime
