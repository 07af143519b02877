package main

import (
	"context"
	"io"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/services/auth"
	"github.com/objecthost/objecthost/services/rest"
)

// console is how a host speaks to the people who run it.
type console struct {
	// stderr takes the log.
	stderr io.Writer
	// notice takes sentences that an operator has to know.
	notice func(string)
	// firstKey gets the API key that is made on an empty database.
	firstKey func(context.Context, auth.NewKey)
	// setupToken gets the token that makes the first administrator on a database
	// without users; nil makes none.
	setupToken func(context.Context, string)
}

// host is a composed host program. Close what newHost returned along with it
// after Stop.
type host struct {
	kernel *core.Kernel
	server *rest.Plugin
}

// Start boots the kernel; when it returns, the host serves. On an error
// everything is stopped again.
func (h *host) Start(ctx context.Context) error { return h.kernel.Start(ctx) }

// Stop stops the plugins in the reverse order of their start, within ctx.
func (h *host) Stop(ctx context.Context) error { return h.kernel.Stop(ctx) }

// Addr is the address of the HTTP server, "" before Start.
func (h *host) Addr() string { return h.server.Addr() }
