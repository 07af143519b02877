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
// What a webhook listens to: object_name is the exact name of an object that
// exists (" account" and "Account" are refused, with a hint), or empty for every
// object that is no system object. Only the host's own declarations may name an
// object that is yet to come. Without triggers a webhook matches nothing, which
// the log says once per save. An inactive webhook matches nothing and its
// waiting deliveries are held; a paused one goes on matching and holds all.
//
// What it sends: the event with object, recordId or matched, action and
// timestamp at the end; payloadFields reduces its records to the named fields,
// an empty list keeps all. The definition's authentication wins over a custom
// header of the same name. A secret, header map or definition that cannot be
// read parks the webhook's deliveries: they are stored dead with the reason, and
// sent only once they can be signed.
//
// Subscriptions are cached and compiled. Every webhook write bumps a version
// row in its own transaction, and every match transaction reads it first, so
// that an event whose transaction starts after a webhook's write committed, on
// any node, is matched by the new definition.
package webhooks
