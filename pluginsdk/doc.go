// Package pluginsdk is what the author of a plugin imports.
//
// A plugin is a [core.Plugin]. The same value runs inside a host program
// (pluginhost.InProcess) and in a process of its own, where it takes one line:
//
//	func main() { pluginsdk.Serve(crm.New()) }
//
// In Init the plugin asks the host for its API, by [HostOf], and keeps it:
//
//	func (p *Plugin) Init(ctx context.Context, host core.Context) error {
//		api, err := pluginsdk.HostOf(ctx, host)
//		...
//	}
//
// What it adds to the host it declares: objects, routes and permissions in its
// manifest, and handlers of events and of record writes, kinds of flow nodes and
// named services by implementing [Contributor].
//
//	events ──► EventHandler   at least once, in batches, in the order of each record's writes
//	write  ──► BeforeHook ──► validation ──► transaction ──► AfterHook
//	flow   ──► FlowNode       a kind of node, by its type
//	HTTP   ──► core.Route     under /api/v1/plugins/<name>, behind the host's sign-in
//
// # What an author has to know
//
// Everything that the plugin asks of the host needs a capability that its
// bundle requests and the operator grants; without it the call ends in an
// [Error] with [CodeDenied]. No transaction of the host is ever open while a
// plugin works: hooks run before it, events are handed over after it, and
// [Records.Transaction] takes a list of steps.
//
// Pass the context of a call on to the host's API: it carries the deadline and
// the trace, and tells the host which call the work belongs to. Spans of the
// plugin's own are recorded by the tracer provider that it sets for its process
// with otel.SetTracerProvider; without one the trace runs through it unseen.
//
// In a process of its own, what is written to standard output is discarded, and
// the log goes to standard error through [core.Context].Log or the default
// logger of log/slog. Panics of handlers are errors of their call and do not end
// the process. The process ends itself when its host has died.
package pluginsdk
