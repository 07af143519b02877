package pluginhost

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
)

// meter counts the host's calls to a plugin, over all generations.
type meter struct {
	calls, errors, nanos atomic.Int64
}

func (m *meter) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	began := time.Now()
	err := invoke(ctx, method, req, reply, cc, opts...)
	m.calls.Add(1)
	m.nanos.Add(int64(time.Since(began)))
	if err != nil {
		m.errors.Add(1)
	}
	return err
}

// stream counts a stream as one call and knows no duration of it.
func (m *meter) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	m.calls.Add(1)
	if err != nil {
		m.errors.Add(1)
	}
	return s, err
}

func (m *meter) status(to *Status) {
	to.Calls, to.Errors = m.calls.Load(), m.errors.Load()
	if to.Calls > 0 {
		to.Latency = float64(m.nanos.Load()) / float64(to.Calls) / 1e6
	}
}
