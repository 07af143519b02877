// Package pluginv1 is the protocol between hosts and plugins, version 1, as Go
// code generated from plugin.proto, which documents it. Authors of plugins in
// Go use package pluginsdk instead.
package pluginv1
