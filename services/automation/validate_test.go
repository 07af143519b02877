package automation

import (
	"errors"
	"testing"
)

func TestAllProblemsAtOnce(t *testing.T) {
	n := &Service{cfg: Config{}}
	for _, types := range [][]NodeType{logicTypes(), containerTypes(), n.dataTypes(), n.outboundTypes()} {
		for _, one := range types {
			fatal(t, n.nodes.add(one))
		}
	}
	_, err := n.Parse([]byte(`{"name":"Bad Name","label":"","type":"schedule","colour":"red","version":0,"runAs":"root",
		"variables":[{"name":"a","type":"text"},{"name":"a","type":"text","isInput":"yes"},{"name":"1x"}],
		"errorHandling":{"strategy":"retry","maxRetries":11,"sleep":1},
		"nodes":[{"id":"start","type":"start","config":{"schedule":"* * *","condition":"1 +"}},
			{"id":"d","type":"decision","config":{"conditions":[{"label":"x","expression":"a ="},{"label":"y"}]}},
			{"id":"d","type":"end"},
			{"id":"h","type":"http","config":{"method":"GET","timeoutMs":"{t}","durable":"yes","extra":1},"timeoutMs":0},
			{"id":"l","type":"loop","config":{"collection":"{x}","body":{"nodes":[{"id":"in","type":"wait"}],"edges":[{"id":"q","source":"in","target":"start"}]}}},
			{"id":"w","type":"wait","waitEventConfig":{"eventType":"timer","timerDuration":"soon"}}],
		"edges":[{"id":"1","source":"start","target":"nowhere"},{"id":"1","source":"h","target":"l","type":"sideways"},
			{"id":"3","source":"h","target":"l","condition":{"dialect":"cel","source":"{amount} > 1"}},{"id":"4","source":"l","target":"h","condition":"amount >"}]}`))
	var invalid *ValidationError
	if !errors.As(err, &invalid) {
		t.Fatalf("error: %v", err)
	}
	var got []any
	for _, p := range invalid.Problems {
		got = append(got, p.Field+" "+p.Code)
	}
	equal(t, "problems", got, `["label required","name invalid_format","version invalid_value","runAs invalid_option",
		"variables[1].isInput invalid_type","variables[1].name invalid_value","variables[2].type required","variables[2].name invalid_format",
		"nodes[3].timeoutMs invalid_value","edges[1].type invalid_option","errorHandling.maxRetries invalid_value","errorHandling.sleep unknown_field",
		"colour unknown_field","nodes[1].config.conditions[1].expression required","nodes[1].config.conditions[0].expression invalid_value",
		"nodes[2].id invalid_value","nodes[3].config.url required","nodes[3].config.durable invalid_value","nodes[3].config.extra unknown_field",
		"nodes[4].config.body.nodes[0].waitEventConfig required","nodes[4].config.body.edges[0].target invalid_value",
		"nodes[5].waitEventConfig.timerDuration invalid_format","edges[0].target invalid_value","edges[1].id invalid_value",
		"edges[2].condition invalid_value","edges[3].condition invalid_value","(body) invalid_value","nodes[0].config.condition invalid_value",
		"nodes[0].config.schedule invalid_format"]`)
}

func TestDurations(t *testing.T) {
	for _, c := range []struct {
		text string
		ms   int64
		ok   bool
	}{
		{"60000", 60000, true}, {"PT1H", 3600000, true}, {"P1DT2H3M4.5S", 93784500, true}, {"P2W", 1209600000, true}, {"0", 0, true},
		{"", 0, false}, {"P", 0, false}, {"PT", 0, false}, {"1h", 0, false}, {"-5", 0, false}, {"P1M", 0, false}, {"P9999999W", 0, false},
		{"99999999999999999", 0, false},
	} {
		d, err := parseDuration(c.text)
		if (err == nil) != c.ok || d.Milliseconds() != c.ms {
			t.Errorf("%q: %v %v", c.text, d, err)
		}
	}
}
