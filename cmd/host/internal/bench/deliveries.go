package bench

import "context"

// Deliveries measures the named scenarios, "all" for every one. It returns an
// [Error] for a bad Config, and another error when a count does not fit.
func Deliveries(ctx context.Context, cfg Config, names ...string) (*Report, error) {
	names, err := chosen(names)
	if err != nil {
		return nil, err
	}
	return measure(ctx, cfg, names, map[string]scenario{
		Drain: drain, Enqueue: enqueue, Records: records, Latency: latency, Isolation: isolation, Idle: idle,
	})
}
