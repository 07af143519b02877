package sqllog

import (
	"context"
	"fmt"
	"strconv"

	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/storage"
)

// CopiedXID is the xid of events that were copied from another database, as
// SQL. Every snapshot sees them.
const CopiedXID = `'3'::xid8`

// Sequence is the sequence that events get their numbers from on Postgres.
const Sequence = "sys_event_sequence"

// UnsettledError tells that a consumer has handled events above one that it has
// not: no number can stand for its position.
type UnsettledError struct{ Consumer string }

// Error implements error.
func (e *UnsettledError) Error() string {
	return fmt.Sprintf("realtime: consumer %s has not handled an event that was committed late; let a host run on the database until it has caught up, and stop it", e.Consumer)
}

// MovePositions translates the positions of all consumers for a copy of the log
// that keeps its sequences and whose events have [CopiedXID]: exactly the events
// that a consumer had not handled are after its new position. Nobody may use the
// log meanwhile. translate returns the new position of the range of a consumer
// that begins with a partition. See [UnsettledError].
func MovePositions(ctx context.Context, from *storage.DB, to storage.Dialect) (translate func(consumer string, first int64) (string, error), err error) {
	log := New(from, nil)
	survey, err := log.Survey(ctx, "")
	if err != nil {
		return nil, err
	}
	type key struct {
		consumer string
		first    int64
	}
	moved := map[key]string{}
	for _, r := range survey.Ranges {
		n, err := log.settled(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("position of consumer %s: %w", r.Consumer, err)
		}
		text := strconv.FormatInt(n, 10)
		if to == storage.Postgres {
			text = position{base: nothing, floor: n}.String()
		}
		moved[key{r.Consumer, int64(r.First)}] = text
	}
	return func(consumer string, first int64) (string, error) {
		text, ok := moved[key{consumer, first}]
		if !ok {
			return "", fmt.Errorf("consumer %s has a new range from partition %d: the log was used meanwhile", consumer, first)
		}
		return text, nil
	}, nil
}

// settled returns the sequence that stands for a position: all events of the
// range up to it were handled, none above it.
func (l *Log) settled(ctx context.Context, r driver.Range) (int64, error) {
	if l.db.Dialect() == storage.SQLite {
		return parseNumber(r.Position)
	}
	var waiting, lowest int64
	for position := r.Position; ; {
		page, err := l.Read(ctx, driver.Query{Position: position, First: r.First, Last: r.Last, Limit: 1000})
		if err != nil {
			return 0, err
		}
		for _, e := range page.Events {
			if waiting == 0 || e.Sequence < lowest {
				lowest = e.Sequence
			}
			waiting++
		}
		if position = page.Next; !page.More {
			break
		}
	}
	if waiting == 0 {
		var last int64
		err := l.db.Read(ctx).QueryRowContext(ctx, `SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM `+Sequence).Scan(&last)
		return last, err
	}
	var above int64
	err := l.db.Read(ctx).QueryRowContext(ctx, `SELECT count(*) FROM sys_event WHERE sequence >= $1 AND partition BETWEEN $2 AND $3`,
		lowest, r.First, r.Last).Scan(&above)
	if err == nil && above != waiting {
		err = &UnsettledError{Consumer: r.Consumer}
	}
	return lowest - 1, err
}
