package realtime_test

import (
	"context"
	"errors"
	"testing"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/services/realtime/memlog"
	"github.com/objecthost/objecthost/storage"
)

// user is a plugin that registers a consumer.
type user struct {
	in      *inbox
	handled chan struct{}
}

func (u *user) Manifest() core.Manifest {
	return core.Manifest{ID: "com.example.user", DependsOn: []string{realtime.PluginID}, Requires: []string{"realtime"}}
}

func (u *user) Init(ctx context.Context, host core.Context) error {
	s, err := core.Lookup(ctx, host, realtime.ServiceKey)
	if err != nil {
		return err
	}
	return s.Consume(realtime.ConsumerConfig{Name: "user", EventAttempts: 1}, func(ctx context.Context, events []*event.Event) error {
		defer func() { u.handled <- struct{}{} }()
		if events[0].ID == "bad" {
			return errors.New("can't")
		}
		return u.in.handle(ctx, events)
	})
}

func TestPlugin(t *testing.T) {
	t.Parallel()
	service, err := realtime.New(storage.NewMemory(), memlog.New(), realtime.Config{})
	if err != nil {
		t.Fatal(err)
	}
	u := &user{in: &inbox{}, handled: make(chan struct{})}
	k, plugin := core.New(core.Config{}), realtime.NewPlugin(service)
	if err := k.Use(u, plugin, seeder{service}); err != nil {
		t.Fatal(err)
	}
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-u.handled
	equal(t, "seeded", []string{"seed"}, u.in.take())
	if err := plugin.CheckHealth(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := service.Append(t.Context(), events("bad")...); err != nil {
		t.Fatal(err)
	}
	<-u.handled
	<-u.handled // the first failure has been noted
	var stuck *realtime.StuckError
	if err := plugin.CheckHealth(t.Context()); !errors.As(err, &stuck) || stuck.Stuck[0].EventID != "bad" {
		t.Fatalf("health: %v", err)
	}
	go func() {
		for range u.handled { //nolint:revive // lets late tries through
		}
	}()
	if err := k.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	equal(t, "start after the stop", realtime.ErrStopped, service.Start(t.Context()))
}

// seeder appends while the host boots, before the consumers work.
type seeder struct{ service *realtime.Service }

func (s seeder) Manifest() core.Manifest {
	return core.Manifest{ID: "com.example.seeder", DependsOn: []string{realtime.PluginID}}
}
func (s seeder) Init(context.Context, core.Context) error { return nil }
func (s seeder) Start(ctx context.Context) error          { return s.service.Append(ctx, events("seed")...) }
