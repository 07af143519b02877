// Package messaging owns the durable outbox of HTTP deliveries and sends it.
//
// Anyone may enqueue: [Service.Enqueue] joins the transaction that its context
// carries, so that a delivery commits or rolls back with the caller's own rows.
// The dispatcher takes due rows by an atomic claim, sends them, and records the
// outcome together with an attempt row.
//
//	         enqueue
//	            │
//	            ▼         claim          2xx
//	┌──────► pending ───────────► in_flight ──────► success
//	│           ▲  │                 │ │ │
//	│           │  │ cancelled,      │ │ └────────► dead     final answer,
//	│           │  │ target gone     │ │                     budget spent
//	│           │  └──────► failed ◄─┘ │
//	│           └──────────────────────┘
//	│            retry, release, claim expired
//	└── redeliver from success, failed and dead
//
// What is guaranteed:
//
//   - A committed row is sent until it ends. A crash between the request and
//     the saved outcome sends the same bytes again under the same id and
//     attempt number: delivery is at least once.
//   - A claim is fenced by a token. A late worker's outcome changes nothing.
//   - No request starts after the end of its claim, by the monotonic clock.
//   - First attempts with one ordering key leave in the order of their
//     order_seq. A row that waits for its retry holds back nobody unless its
//     target blocks on retry.
//   - A target that hangs or fails costs its own slots only.
//
// The table of allowed transitions is in state.go, the outcome table in
// outcome.go, the retry schedule in retry.go.
package messaging
