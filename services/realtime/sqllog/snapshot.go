package sqllog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/objecthost/objecthost/services/realtime/driver"
)

// snapshot is a pg_snapshot: a transaction is seen when it is below xmax and
// not in xip. xip is sorted.
type snapshot struct {
	xmin, xmax uint64
	xip        []uint64
}

// nothing is a snapshot that sees no transaction: 3 is the first xid.
var nothing = snapshot{xmin: 3, xmax: 3}

// maxXID is beyond every transaction; PostgreSQL takes no greater ones.
const maxXID = 1 << 62

func parseSnapshot(text string) (snapshot, error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return snapshot{}, fmt.Errorf("snapshot %q has not three parts", text)
	}
	var s snapshot
	var err error
	if s.xmin, err = strconv.ParseUint(parts[0], 10, 64); err != nil {
		return snapshot{}, fmt.Errorf("snapshot %q: %w", text, err)
	}
	if s.xmax, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return snapshot{}, fmt.Errorf("snapshot %q: %w", text, err)
	}
	if s.xmin == 0 || s.xmin > s.xmax || s.xmax > maxXID {
		return snapshot{}, fmt.Errorf("snapshot %q is upside down", text)
	}
	if parts[2] == "" {
		return s, nil
	}
	last := s.xmin
	for xid := range strings.SplitSeq(parts[2], ",") {
		x, err := strconv.ParseUint(xid, 10, 64)
		if err != nil {
			return snapshot{}, fmt.Errorf("snapshot %q: %w", text, err)
		}
		if x < last || x >= s.xmax || x == last && len(s.xip) > 0 {
			return snapshot{}, fmt.Errorf("snapshot %q has transactions out of order", text)
		}
		last = x
		s.xip = append(s.xip, x)
	}
	return s, nil
}

// String is the text that PostgreSQL reads.
func (s snapshot) String() string {
	b := make([]byte, 0, 48)
	b = strconv.AppendUint(b, s.xmin, 10)
	b = append(b, ':')
	b = strconv.AppendUint(b, s.xmax, 10)
	b = append(b, ':')
	for i, x := range s.xip {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, x, 10)
	}
	return string(b)
}

// sees tells whether the snapshot sees what the transaction xid did.
func (s snapshot) sees(xid uint64) bool {
	if xid >= s.xmax {
		return false
	}
	_, open := slices.BinarySearch(s.xip, xid)
	return !open
}

// without returns the snapshot with xid among the open transactions.
func (s snapshot) without(xid uint64) snapshot {
	if !s.sees(xid) {
		return s
	}
	i, _ := slices.BinarySearch(s.xip, xid)
	s.xip = slices.Insert(slices.Clone(s.xip), i, xid)
	s.xmin = min(s.xmin, xid)
	return s
}

// position is the position of a consumer; DESIGN.md defines its parts.
type position struct {
	base  snapshot
	floor int64
	// pinned is the delta that is being read, nil between deltas.
	pinned *delta
}

// delta is what is read at a time: what target sees and the base doesn't.
type delta struct {
	target         snapshot
	floor, ceiling int64
	cursor         int64
}

func parsePosition(text string) (position, error) {
	base, pinned, isPinned := strings.Cut(text, "|")
	p := position{}
	snap, numbers, err := parseMark(base, 1)
	if err != nil {
		return p, fmt.Errorf("%w: %q: %w", driver.ErrBadPosition, text, err)
	}
	p.base, p.floor = snap, numbers[0]
	if !isPinned {
		return p, nil
	}
	snap, numbers, err = parseMark(pinned, 3)
	if err != nil {
		return p, fmt.Errorf("%w: %q: %w", driver.ErrBadPosition, text, err)
	}
	p.pinned = &delta{target: snap, floor: numbers[0], ceiling: numbers[1], cursor: numbers[2]}
	return p, nil
}

// parseMark reads a snapshot and n numbers, separated by @.
func parseMark(text string, n int) (snapshot, []int64, error) {
	parts := strings.Split(text, "@")
	if len(parts) != n+1 {
		return snapshot{}, nil, fmt.Errorf("%d parts instead of %d", len(parts), n+1)
	}
	snap, err := parseSnapshot(parts[0])
	if err != nil {
		return snapshot{}, nil, err
	}
	numbers := make([]int64, n)
	for i := range numbers {
		if numbers[i], err = strconv.ParseInt(parts[i+1], 10, 64); err != nil {
			return snapshot{}, nil, err
		}
	}
	return snap, numbers, nil
}

// String is the stored text.
func (p position) String() string {
	text := fmt.Sprintf("%v@%d", p.base, p.floor)
	if d := p.pinned; d != nil {
		text += fmt.Sprintf("|%v@%d@%d@%d", d.target, d.floor, d.ceiling, d.cursor)
	}
	return text
}

// xmax is the highest xmax in the position.
func (p position) xmax() uint64 {
	if p.pinned != nil {
		return max(p.base.xmax, p.pinned.target.xmax)
	}
	return p.base.xmax
}

// late returns those transactions that were open in the base and that target
// sees, as an array for PostgreSQL.
func (p position) late(target snapshot) (array string, n int) {
	var b strings.Builder
	b.WriteByte('{')
	for _, x := range p.base.xip {
		if target.sees(x) {
			if n > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strconv.FormatUint(x, 10))
			n++
		}
	}
	b.WriteByte('}')
	return b.String(), n
}

// exhausted is the position after all of d.
func exhausted(d delta) position {
	return position{base: d.target, floor: d.floor}
}
