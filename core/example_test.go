package core_test

import (
	"context"
	"fmt"

	"github.com/objecthost/objecthost/core"
)

// The service, declared beside its interface.
type Clock interface{ Now() string }

var ClockKey = core.NewKey[Clock]("clock")

type fixedClock string

func (c fixedClock) Now() string { return string(c) }

type clockPlugin struct{}

func (clockPlugin) Manifest() core.Manifest {
	return core.Manifest{ID: "com.example.clock", Version: "1.0.0", Provides: []string{ClockKey.Name()}}
}

func (clockPlugin) Init(_ context.Context, host core.Context) error {
	return core.Provide[Clock](host, ClockKey, fixedClock("noon"))
}

type printer struct{ host core.Context }

func (*printer) Manifest() core.Manifest {
	return core.Manifest{ID: "com.example.printer", DependsOn: []string{"com.example.clock"}, Requires: []string{"clock"}}
}

func (p *printer) Init(_ context.Context, host core.Context) error {
	p.host = host
	host.On(core.HookListening, func(context.Context, any) error {
		fmt.Println("everything runs")
		return nil
	})
	return nil
}

func (p *printer) Start(ctx context.Context) error {
	clock, err := core.Lookup(ctx, p.host, ClockKey)
	if err != nil {
		return err
	}
	fmt.Println("started at", clock.Now())
	return nil
}

func (*printer) Stop(context.Context) error {
	fmt.Println("stopped")
	return nil
}

func Example() {
	k := core.New(core.Config{})
	// The order of Use does not matter: the printer depends on the clock.
	if err := k.Use(&printer{}, clockPlugin{}); err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	if err := k.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	if err := k.Stop(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// started at noon
	// everything runs
	// stopped
}
