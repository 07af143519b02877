package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/objecthost/objecthost/cmd/host/internal/settings"
	webhookstore "github.com/objecthost/objecthost/plugins/webhooks/sqlstore"
	authstore "github.com/objecthost/objecthost/services/auth/sqlstore"
	automationstore "github.com/objecthost/objecthost/services/automation/sqlstore"
	messagingstore "github.com/objecthost/objecthost/services/messaging/sqlstore"
	"github.com/objecthost/objecthost/services/realtime/sqllog"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/dsn"
	"github.com/objecthost/objecthost/storage/lease"
	"github.com/objecthost/objecthost/storage/seal"
	"github.com/objecthost/objecthost/storage/transfer"
)

// openDatabase opens and migrates the database and takes the lock of its one
// host, where there is one host only. The returned function gives both back.
func openDatabase(ctx context.Context, cfg settings.Settings, log *slog.Logger) (*storage.DB, func(), error) {
	db, err := openMigrated(ctx, cfg.DB, true)
	if err != nil {
		return nil, nil, err
	}
	if unfinished, err := transfer.Unfinished(ctx, db.DB); err != nil || unfinished {
		if unfinished {
			err = errUnfinished
		}
		return nil, nil, errors.Join(err, db.close())
	}
	return db.DB, func() {
		if err := db.close(); err != nil {
			log.Error("close the database", "error", err)
		}
	}, nil
}

// migrated is an open database with all tables that numbered migrations make.
type migrated struct {
	*storage.DB
	release func() error
}

// openMigrated opens the database. With lock it refuses a SQLite file that
// another host serves.
func openMigrated(ctx context.Context, name string, lock bool) (migrated, error) {
	if file, ok := (settings.Settings{DB: name}).SQLiteFile(); ok {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return migrated{}, fmt.Errorf("make the folder of the database: %w", err)
		}
	}
	db, err := dsn.Open(ctx, name, storage.Config{})
	if err != nil {
		return migrated{}, err
	}
	m := migrated{DB: db, release: func() error { return nil }}
	if lock {
		release, err := db.Lock(ctx)
		if err != nil {
			return migrated{}, errors.Join(err, db.Close())
		}
		m.release = release
	}
	err = db.Migrate(ctx, seal.Migrations(), lease.Migrations(), sqllog.Migrations(), messagingstore.Migrations(), authstore.Migrations(), webhookstore.Migrations(),
		automationstore.Migrations())
	if err != nil {
		return migrated{}, errors.Join(fmt.Errorf("migrate the database: %w", err), m.close())
	}
	return m, nil
}

func (m migrated) close() error { return errors.Join(m.Close(), m.release()) }
