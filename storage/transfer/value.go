package transfer

import (
	"encoding/binary"
	"fmt"
	"hash"
	"math"
	"strconv"

	"github.com/objecthost/objecthost/storage"
)

// normalise brings what a driver gave into the one form that a kind of values
// has on both dialects: bool, int64, float64, string or []byte; nil stays.
func normalise(k kind, v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	switch k {
	case kindBool:
		switch v := v.(type) {
		case bool:
			return v, nil
		case int64:
			return v != 0, nil
		}
	case kindInt:
		switch v := v.(type) {
		case int64:
			return v, nil
		case bool:
			if v {
				return int64(1), nil
			}
			return int64(0), nil
		}
	case kindFloat:
		switch v := v.(type) {
		case float64:
			return v, nil
		case int64:
			return float64(v), nil
		}
	case kindDecimal:
		switch v := v.(type) {
		case string:
			return storage.CanonicalDecimal(v)
		case int64:
			return strconv.FormatInt(v, 10), nil
		}
	case kindText:
		switch v := v.(type) {
		case string:
			return v, nil
		case []byte:
			return string(v), nil
		}
	case kindBytes:
		switch v := v.(type) {
		case []byte:
			return append([]byte{}, v...), nil
		case string:
			return []byte(v), nil
		}
	}
	return nil, fmt.Errorf("a value of type %T is no %s", v, k)
}

// size is about how much memory a value takes.
func size(v any) int {
	switch v := v.(type) {
	case string:
		return len(v) + 16
	case []byte:
		return len(v) + 24
	}
	return 16
}

// digest adds a value to a checksum so that no two different rows look alike.
func digest(h hash.Hash, v any) {
	var b [9]byte
	tagged := func(tag byte, n uint64) {
		b[0] = tag
		binary.BigEndian.PutUint64(b[1:], n)
		_, _ = h.Write(b[:])
	}
	switch v := v.(type) {
	case nil:
		tagged('n', 0)
	case bool:
		n := uint64(0)
		if v {
			n = 1
		}
		tagged('b', n)
	case int64:
		tagged('i', uint64(v))
	case float64:
		tagged('f', math.Float64bits(v))
	case string:
		tagged('s', uint64(len(v)))
		_, _ = h.Write([]byte(v))
	case []byte:
		tagged('x', uint64(len(v)))
		_, _ = h.Write(v)
	}
}

// cast is what a parameter is written as on Postgres, where its type has to be
// said.
func cast(c column) string {
	switch c.kind {
	case kindBool:
		return "::boolean"
	case kindInt:
		return "::bigint"
	case kindFloat:
		return "::double precision"
	case kindDecimal:
		return "::numeric"
	case kindBytes:
		return "::bytea"
	}
	return "::text"
}

// bound is a value as the target's driver takes it.
func bound(dialect storage.Dialect, v any) any {
	if flag, ok := v.(bool); ok && dialect == storage.SQLite {
		if flag {
			return int64(1)
		}
		return int64(0)
	}
	return v
}
