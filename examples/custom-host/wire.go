//go:build wireinject

package main

import (
	"context"

	"github.com/google/wire"
)

// newHost builds the host. The function that it returns closes the database;
// call it after the kernel's Stop.
func newHost(ctx context.Context, cfg settings) (*host, func(), error) {
	wire.Build(hostSet)
	return nil, nil, nil
}
