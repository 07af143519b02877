// Package webhooks turns record events into HTTP deliveries.
//
// It owns the object sys_webhook and three things around it. The write door
// checks every webhook, keeps its columns and its definition in step, moves
// secrets out of the definition, and writes the outbox's target in the
// webhook's own transaction. The enqueuer reads the event log as a durable
// consumer and, in the transaction in which its position moves, stores one
// delivery per event and matching webhook: matching is exactly-once across
// crashes. The routes redeliver, test and rotate.
//
//	sys_webhook write ──► row + target + version      one transaction
//	record event ───────► deliveries + log position   one transaction
//	delivery.finished ──► webhook switched off        one transaction
//
// Subscriptions are cached and compiled. Every webhook write bumps a version
// row in its own transaction, and every match transaction reads it first, so
// that an event whose transaction starts after a webhook's write committed, on
// any node, is matched by the new definition.
package webhooks
