package memfanout_test

import (
	"testing"

	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/services/realtime/fanouttest"
	"github.com/objecthost/objecthost/services/realtime/memfanout"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	fanouttest.Run(t, func(*testing.T) fanouttest.Transport {
		var hub, other memfanout.Hub
		return fanouttest.Transport{
			Join:     func(*testing.T) driver.Fanout { return hub.Join() },
			Stranger: func(*testing.T) driver.Fanout { return other.Join() },
		}
	})
}
