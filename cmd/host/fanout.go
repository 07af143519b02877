package main

import (
	"log/slog"

	"github.com/objecthost/objecthost/cmd/host/internal/settings"
	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/services/realtime/natsfanout"
	"github.com/objecthost/objecthost/services/realtime/pgfanout"
	"github.com/objecthost/objecthost/storage"
)

// newFanout chooses what wakes the other hosts of the database; nil where there
// are none, or they are to poll.
func newFanout(cfg settings.Settings, db *storage.DB, log *slog.Logger) (driver.Fanout, func(), error) {
	none := func() {}
	if err := checkFanout(cfg, db.Dialect()); err != nil {
		return nil, none, err
	}
	switch {
	case cfg.Fanout == "none", db.Dialect() == storage.SQLite:
		return nil, none, nil
	case cfg.Fanout == "nats", cfg.Fanout == "auto" && cfg.NATSURL != "":
		fanout, err := natsfanout.New(natsfanout.Config{URL: cfg.NATSURL, Name: cfg.NATSName})
		if err != nil {
			return nil, none, err
		}
		return fanout, fanout.Close, nil
	}
	dsn := cfg.ListenDSN
	switch {
	case dsn != "":
	case db.Direct():
		dsn = cfg.DB
	default:
		log.Warn("a pooler stands before the database: set db-listen-dsn to be woken by other hosts; until then their writes are found by polling")
	}
	return pgfanout.New(db, dsn), none, nil
}

// checkFanout refuses settings that would do nothing.
func checkFanout(cfg settings.Settings, dialect storage.Dialect) error {
	refuse := func(name, message string) error { return &settings.Error{Source: name, Message: message} }
	switch sqlite := dialect == storage.SQLite; {
	case sqlite && (cfg.Fanout == "postgres" || cfg.Fanout == "nats"):
		return refuse("fanout", "a SQLite file has one host, there is nobody to wake")
	case sqlite && cfg.ListenDSN != "":
		return refuse("db-listen-dsn", "is for a database on PostgreSQL")
	case sqlite && cfg.NATSURL != "":
		return refuse("nats-url", "a SQLite file has one host, there is nobody to wake")
	case cfg.Fanout == "nats" && cfg.NATSURL == "":
		return refuse("fanout", "nats needs nats-url")
	case cfg.NATSURL != "" && cfg.Fanout != "nats" && cfg.Fanout != "auto":
		return refuse("nats-url", "is not used with fanout "+cfg.Fanout)
	case cfg.ListenDSN != "" && (cfg.Fanout == "nats" || cfg.Fanout == "none" || cfg.NATSURL != ""):
		return refuse("db-listen-dsn", "is not used with fanout by NATS, or without")
	}
	return nil
}
