//go:build wireinject

package main

import (
	"context"

	"github.com/google/wire"

	"github.com/objecthost/objecthost/cmd/host/internal/settings"
)

// newHost builds a host out of its settings. The function that it returns
// closes what was opened; call it after Stop.
func newHost(ctx context.Context, cfg settings.Settings, out console) (*host, func(), error) {
	wire.Build(hostSet)
	return nil, nil, nil
}
