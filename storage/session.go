package storage

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"
)

// session is bun on a Querier. bun.Tx can't be made of a transaction that was
// not begun by bun, and its nested transactions would pass by the rules of InTx.
type session struct {
	db   *bun.DB
	conn Querier
}

var _ bun.IDB = session{}

func (s session) Dialect() schema.Dialect { return s.db.Dialect() }

func (s session) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return s.conn.ExecContext(ctx, s.db.QueryGen().FormatQuery(query, args...))
}

func (s session) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return s.conn.QueryContext(ctx, s.db.QueryGen().FormatQuery(query, args...))
}

func (s session) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return s.conn.QueryRowContext(ctx, s.db.QueryGen().FormatQuery(query, args...))
}

func (s session) NewValues(model any) *bun.ValuesQuery {
	return bun.NewValuesQuery(s.db, model).Conn(s.conn)
}
func (s session) NewSelect() *bun.SelectQuery { return bun.NewSelectQuery(s.db).Conn(s.conn) }
func (s session) NewInsert() *bun.InsertQuery { return bun.NewInsertQuery(s.db).Conn(s.conn) }
func (s session) NewUpdate() *bun.UpdateQuery { return bun.NewUpdateQuery(s.db).Conn(s.conn) }
func (s session) NewDelete() *bun.DeleteQuery { return bun.NewDeleteQuery(s.db).Conn(s.conn) }
func (s session) NewMerge() *bun.MergeQuery   { return bun.NewMergeQuery(s.db).Conn(s.conn) }

func (s session) NewRaw(query string, args ...any) *bun.RawQuery {
	return bun.NewRawQuery(s.db, query, args...).Conn(s.conn)
}

func (s session) NewCreateTable() *bun.CreateTableQuery {
	return bun.NewCreateTableQuery(s.db).Conn(s.conn)
}
func (s session) NewDropTable() *bun.DropTableQuery { return bun.NewDropTableQuery(s.db).Conn(s.conn) }

func (s session) NewCreateIndex() *bun.CreateIndexQuery {
	return bun.NewCreateIndexQuery(s.db).Conn(s.conn)
}
func (s session) NewDropIndex() *bun.DropIndexQuery { return bun.NewDropIndexQuery(s.db).Conn(s.conn) }

func (s session) NewTruncateTable() *bun.TruncateTableQuery {
	return bun.NewTruncateTableQuery(s.db).Conn(s.conn)
}
func (s session) NewAddColumn() *bun.AddColumnQuery { return bun.NewAddColumnQuery(s.db).Conn(s.conn) }

func (s session) NewDropColumn() *bun.DropColumnQuery {
	return bun.NewDropColumnQuery(s.db).Conn(s.conn)
}

func (s session) BeginTx(context.Context, *sql.TxOptions) (bun.Tx, error) {
	return bun.Tx{}, ErrUseInTx
}

func (s session) RunInTx(context.Context, *sql.TxOptions, func(context.Context, bun.Tx) error) error {
	return ErrUseInTx
}

// failConnector fails every connection with the error in the context.
type failConnector struct{}

func (failConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if err, ok := ctx.Value(failKey{}).(error); ok {
		return nil, err
	}
	return nil, errNoFailure
}

func (failConnector) Driver() driver.Driver { return failDriver{} }

type failDriver struct{}

func (failDriver) Open(string) (driver.Conn, error) { return nil, errNoFailure }
