// Package pluginhost runs plugins in processes of their own, and in the host's
// process by the same rules.
//
// A [Manager] finds the bundles of a folder, checks signature, lock file and
// grants, and makes a core.Plugin of each, to be given to the kernel. The
// process behind it comes and goes; what the kernel and other plugins hold are
// handles that stay:
//
//	       kernel, data, rest, realtime
//	                   │ hooks, routes, services, events
//	           ┌───────┴───────┐
//	           │    adapter    │ one per plugin, lives as long as the host
//	           └───────┬───────┘
//	               supervisor ── states, backoff, breaker, health
//	                   │
//	generation n ── instance ── process ◄── gRPC ──► the plugin
//	                   └── host API: every call against the grants
//
// # States
//
//	installed ─► verified ─► starting ─► ready ◄─► degraded
//	    │            ▲           │         │           │
//	    ▼            │           └────┬────┴───────────┘
//	 disabled        └── backoff ◄────┤ exit, hang, refusal
//	                                  ▼
//	                                failed   (breaker; Restart leaves it)
//
// A plugin never keeps the host from starting or stopping.
//
// # What is promised
//
//   - What runs are the bytes whose hashes a signed manifest names.
//   - A call that a plugin does not answer ends at its deadline. While it does
//     not run, calls end at once in a *pluginsdk.Error with CodeUnavailable.
//   - A before hook that is declared fail-closed holds in every state but
//     disabled; disabling a plugin is the operator's decision to go without.
//   - Events are handed over at least once, through an inbox in the database, so
//     that no transaction is open while a plugin works.
//   - Nothing of a plugin outlives the host, but for what it moved into a process
//     group of its own before the host was killed by SIGKILL.
//
// # What a process of its own isolates, and what not
//
// A crash, a leak or a hang stays in the process; memory, files and processor
// time are bounded; the host's environment, database and keys are not handed
// over. It is no sandbox: the process runs as the host's user and can read that
// user's files and open sockets of its own. Capabilities bound what the host
// does for a plugin. Plugins in the host's process are trusted code.
package pluginhost
