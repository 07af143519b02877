package data_test

import (
	"fmt"
	"testing"

	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func benchmark(b *testing.B, run func(b *testing.B, e *bundle)) {
	for name, dsn := range map[string]func(testing.TB) string{"sqlite": storagetest.SQLite, "postgres": storagetest.Postgres} {
		b.Run(name, func(b *testing.B) {
			run(b, setup(b, storagetest.Open(b, dsn(b), storage.Config{}), account()))
		})
	}
}

func BenchmarkCreate(b *testing.B) {
	benchmark(b, func(b *testing.B, e *bundle) {
		for b.Loop() {
			must(e.Create(e.as, "account", data.Record{"name": "a", "annual_revenue": 1}))(b)
		}
	})
}

func BenchmarkCreateMany1000(b *testing.B) {
	benchmark(b, func(b *testing.B, e *bundle) {
		rows := make([]data.Record, 1000)
		for i := range rows {
			rows[i] = data.Record{"name": fmt.Sprint(i), "annual_revenue": i}
		}
		for b.Loop() {
			must(e.CreateMany(e.as, "account", rows))(b)
		}
	})
}

func BenchmarkUpdate(b *testing.B) {
	benchmark(b, func(b *testing.B, e *bundle) {
		id := create(b, e, "account", data.Record{"name": "a"})
		for b.Loop() {
			must(e.Update(e.as, "account", id, data.Record{"annual_revenue": 2}, data.Match{}))(b)
		}
	})
}

func BenchmarkFindPageOf10000(b *testing.B) {
	benchmark(b, func(b *testing.B, e *bundle) {
		rows := make([]data.Record, 10_000)
		for i := range rows {
			rows[i] = data.Record{"name": fmt.Sprint(i), "annual_revenue": i}
		}
		must(e.CreateMany(e.as, "account", rows))(b)
		q := data.Query{Where: data.Where("annual_revenue", "$gte", 5000), OrderBy: []data.Sort{{Field: "name"}}, Limit: ptr(50)}
		for b.Loop() {
			must(e.Find(e.as, "account", q))(b)
		}
	})
}
