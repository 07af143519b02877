package realtime

import (
	"context"
	"fmt"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime/driver"
)

// Scan returns events that the log still holds, of the time from from to
// before to, above a sequence and at most limit of them; last is the sequence to
// go on from, done tells that nothing is above it. It is for looking back: what
// commits while somebody scans may be left out, which consumers never do.
func (s *Service) Scan(ctx context.Context, after int64, from, to time.Time, limit int) (events []*event.Event, last int64, done bool, err error) {
	found, err := s.log.Scan(ctx, driver.Scan{After: after, From: from.UnixMilli(), To: to.UnixMilli(), Limit: limit})
	if err != nil {
		return nil, 0, false, fmt.Errorf("scan the log: %w", err)
	}
	return found.Events, found.Last, found.Done, nil
}
