package lease

import (
	"math/bits"

	"github.com/objecthost/objecthost/core/event"
)

// Ranges is the number of ranges that the partitions are leased in, each of
// event.Partitions/Ranges partitions that follow each other.
const Ranges = 16

const span = event.Partitions / Ranges

// Set is a set of ranges, one bit each.
type Set uint16

// All has every range.
const All Set = 1<<Ranges - 1

// RangeOf is the range of a partition.
func RangeOf(partition int) int { return partition / span }

// Has tells whether the set has a partition's range.
func (s Set) Has(partition int) bool {
	return partition >= 0 && partition < event.Partitions && s.HasRange(RangeOf(partition))
}

// HasRange tells whether the set has a range.
func (s Set) HasRange(r int) bool { return s&(1<<r) != 0 }

// Len is the number of ranges in the set.
func (s Set) Len() int { return bits.OnesCount16(uint16(s)) }

// Partitions lists the partitions of the set's ranges, ascending.
func (s Set) Partitions() []int64 {
	list := make([]int64, 0, s.Len()*span)
	for p := range event.Partitions {
		if s.Has(p) {
			list = append(list, int64(p))
		}
	}
	return list
}

// last returns the n highest ranges of the set.
func (s Set) last(n int) (top Set) {
	for r := Ranges - 1; r >= 0 && n > 0; r-- {
		if s&(1<<r) != 0 {
			top |= 1 << r
			n--
		}
	}
	return top
}

func (s Set) numbers() []int64 {
	list := make([]int64, 0, s.Len())
	for r := range Ranges {
		if s&(1<<r) != 0 {
			list = append(list, int64(r))
		}
	}
	return list
}
