// Package natsfanout wakes the nodes of a cluster through a NATS server with
// JetStream. Messages carry nothing but topics and are kept for a minute, in
// memory; events and positions stay in the database.
package natsfanout

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/objecthost/objecthost/services/realtime/driver"
)

// DefaultName is the name of the stream and of its subjects.
const DefaultName = "objecthost"

// keep is how long the stream keeps messages. Listeners that were away longer
// look at everything anyway.
const keep = time.Minute

// Config is how to reach the server.
type Config struct {
	// URL is nats://[user:password@]host:port, or tls:// for encryption; more
	// than one server is separated by commas.
	URL string
	// Name is the stream's and begins its subjects: 1 to 32 of a-z, 0-9, _ and
	// -, beginning with a letter. Default "objecthost". Hosts of one database
	// have the same, installations that share a server one each; where two have
	// the same they wake each other for nothing.
	Name string
	// ConnectTimeout bounds one attempt to connect; default 5 seconds.
	ConnectTimeout time.Duration
}

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)

// ErrConfig is wrapped by what New refuses; no text holds a password.
var ErrConfig = errors.New("natsfanout: bad configuration")

// Check tells whether the settings can be used, without connecting.
func (c Config) Check() error {
	if c.Name != "" && !nameForm.MatchString(c.Name) {
		return fmt.Errorf("%w: the name must be 1 to 32 of a-z, 0-9, _ and -, beginning with a letter", ErrConfig)
	}
	for server := range strings.SplitSeq(c.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(server))
		if err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls" {
			return fmt.Errorf("%w: a server is written nats://host:4222 or tls://host:4222", ErrConfig)
		}
	}
	return nil
}

// Fanout implements driver.Fanout.
type Fanout struct {
	cfg  Config
	node string

	mu     sync.Mutex
	conn   *nats.Conn
	closed bool
}

var _ driver.Fanout = (*Fanout)(nil)

// errClosed is returned after Close.
var errClosed = errors.New("natsfanout: closed")

// New returns the fanout of a node. It connects at its first use, and again by
// itself whenever the connection was lost. The caller closes it.
func New(cfg Config) (*Fanout, error) {
	if cfg.Name == "" {
		cfg.Name = DefaultName
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 5 * time.Second
	}
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	return &Fanout{cfg: cfg, node: uuid.NewString()}, nil
}

// Close ends the connection. It may be called more than once.
func (f *Fanout) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.conn != nil {
		f.conn.Close()
	}
}

// connect returns the connection, which is made once.
func (f *Fanout) connect() (*nats.Conn, jetstream.JetStream, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, nil, errClosed
	}
	if f.conn == nil {
		conn, err := nats.Connect(f.cfg.URL, nats.Name("objecthost"), nats.Timeout(f.cfg.ConnectTimeout), nats.MaxReconnects(-1),
			nats.ReconnectWait(100*time.Millisecond), nats.ReconnectJitter(50*time.Millisecond, 50*time.Millisecond),
			nats.PingInterval(20*time.Second), nats.MaxPingsOutstanding(2), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			return nil, nil, fmt.Errorf("natsfanout: connect: %w", err)
		}
		f.conn = conn
	}
	js, err := jetstream.New(f.conn)
	if err != nil {
		return nil, nil, fmt.Errorf("natsfanout: %w", err)
	}
	return f.conn, js, nil
}

func (f *Fanout) subject() string { return f.cfg.Name + ".wake" }

// stream makes sure of the stream, which is gone after a restart of the server.
func (f *Fanout) stream(ctx context.Context, js jetstream.JetStream) (jetstream.Stream, error) {
	stream, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: f.cfg.Name, Description: "wake-ups between hosts", Subjects: []string{f.subject()},
		Storage: jetstream.MemoryStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		MaxAge: keep, MaxBytes: 8 << 20, MaxMsgSize: 16 << 10,
	})
	if err != nil {
		return nil, fmt.Errorf("natsfanout: make the stream %s (the server needs JetStream): %w", f.cfg.Name, err)
	}
	return stream, nil
}

// Announce implements [driver.Fanout]. The message is the node and the topics,
// separated by spaces.
func (f *Fanout) Announce(ctx context.Context, topics []string) error {
	_, js, err := f.connect()
	if err != nil {
		return err
	}
	text := []byte(f.node + " " + strings.Join(topics, " "))
	_, err = js.Publish(ctx, f.subject(), text)
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		if _, err = f.stream(ctx, js); err == nil {
			_, err = js.Publish(ctx, f.subject(), text)
		}
	}
	if err != nil {
		return fmt.Errorf("natsfanout: announce: %w", err)
	}
	return nil
}

// Listen implements [driver.Fanout]. It ends when the connection is lost,
// although that mends itself: what was announced meanwhile may be gone.
func (f *Fanout) Listen(ctx context.Context, wake func(topics []string)) error {
	conn, js, err := f.connect()
	if err != nil {
		return err
	}
	lost := conn.StatusChanged(nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
	defer conn.RemoveStatusListener(lost)
	setup, cancel := context.WithTimeout(ctx, f.cfg.ConnectTimeout)
	defer cancel()
	stream, err := f.stream(setup, js)
	if err != nil {
		return err
	}
	info, err := stream.Info(setup)
	if err != nil {
		return fmt.Errorf("natsfanout: listen: %w", err)
	}
	consumer, err := js.OrderedConsumer(setup, f.cfg.Name, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: info.State.LastSeq + 1,
	})
	if err != nil {
		return fmt.Errorf("natsfanout: listen: %w", err)
	}
	failed := make(chan error, 1)
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		node, topics, _ := strings.Cut(string(m.Data()), " ")
		if node != f.node && topics != "" {
			wake(strings.Fields(topics))
		}
	}, jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		select {
		case failed <- err:
		default:
		}
	}))
	if err != nil {
		return fmt.Errorf("natsfanout: listen: %w", err)
	}
	defer func() {
		consuming.Stop()
		<-consuming.Closed()
	}()
	wake(nil)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-failed:
		return fmt.Errorf("natsfanout: listen: %w", err)
	case status := <-lost:
		return fmt.Errorf("natsfanout: the connection is %s", status)
	}
}
