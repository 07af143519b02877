package sqlite

import (
	"container/list"
	"context"
	"database/sql"
	"database/sql/driver"
	"sync"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// cachedStatements is the number of prepared statements that a connection
// keeps. Preparing costs more than running a short statement.
const cachedStatements = 256

// connector opens connections that keep their prepared statements. Callers
// need not prepare anything: the text of a statement finds it again.
type connector struct{ dsn string }

// registered is the driver that collations are registered with: the module
// gives it out through database/sql only.
var registered = sync.OnceValues(func() (driver.Driver, error) {
	db, err := sql.Open("sqlite", "")
	if err != nil {
		return nil, err
	}
	return db.Driver(), db.Close()
})

// Connect implements driver.Connector.
func (c connector) Connect(context.Context) (driver.Conn, error) {
	d, err := registered()
	if err != nil {
		return nil, err
	}
	raw, err := d.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	full, ok := raw.(fullConn)
	if !ok {
		_ = raw.Close()
		return nil, driver.ErrBadConn
	}
	return &conn{fullConn: full, statements: make(map[string]*list.Element)}, nil
}

// Driver implements driver.Connector.
func (connector) Driver() driver.Driver {
	d, _ := registered() // Connect reports the error
	return d
}

// fullConn is what database/sql uses of the driver's connection.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// fullStmt and fullRows are the same for statements and rows.
type fullStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type fullRows interface {
	driver.Rows
	driver.RowsColumnTypeDatabaseTypeName
	driver.RowsColumnTypeLength
	driver.RowsColumnTypeNullable
	driver.RowsColumnTypePrecisionScale
	driver.RowsColumnTypeScanType
}

// conn is one connection. database/sql never uses it from two goroutines at
// once.
type conn struct {
	fullConn
	statements map[string]*list.Element
	used       list.List // of *statement, last used first
}

// statement is a prepared statement. It is busy while rows of it are open;
// the same text is then prepared a second time.
type statement struct {
	fullStmt
	text string
	busy bool
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	s, err := c.prepared(ctx, text)
	if err != nil {
		return nil, err
	}
	defer c.done(s)
	return s.ExecContext(ctx, args)
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := c.prepared(ctx, text)
	if err != nil {
		return nil, err
	}
	got, err := s.QueryContext(ctx, args)
	if err != nil {
		c.done(s)
		return nil, err
	}
	full, ok := got.(fullRows)
	if !ok {
		_ = got.Close()
		c.done(s)
		return nil, driver.ErrSkip
	}
	return &rows{fullRows: full, conn: c, statement: s}, nil
}

// Close closes the kept statements and the connection.
func (c *conn) Close() error {
	for e := c.used.Front(); e != nil; e = e.Next() {
		_ = e.Value.(*statement).Close()
	}
	return c.fullConn.Close()
}

// prepared returns a statement that is not in use, marked busy.
func (c *conn) prepared(ctx context.Context, text string) (*statement, error) {
	e := c.statements[text]
	if e != nil {
		if s := e.Value.(*statement); !s.busy {
			c.used.MoveToFront(e)
			s.busy = true
			return s, nil
		}
	}
	got, err := c.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	full, ok := got.(fullStmt)
	if !ok {
		_ = got.Close()
		return nil, driver.ErrSkip
	}
	s := &statement{fullStmt: full, text: text, busy: true}
	if e == nil {
		c.statements[text] = c.used.PushFront(s)
		c.trim()
	}
	return s, nil
}

// trim closes the statements that were not used for longest.
func (c *conn) trim() {
	for e := c.used.Back(); e != nil && c.used.Len() > cachedStatements; {
		previous := e.Prev()
		if s := e.Value.(*statement); !s.busy {
			c.used.Remove(e)
			delete(c.statements, s.text)
			_ = s.Close()
		}
		e = previous
	}
}

// done frees a statement, and closes one that is not kept.
func (c *conn) done(s *statement) {
	s.busy = false
	if e := c.statements[s.text]; e == nil || e.Value.(*statement) != s {
		_ = s.Close()
	}
}

// rows frees their statement when they are closed.
type rows struct {
	fullRows
	conn      *conn
	statement *statement
}

// Close implements driver.Rows.
func (r *rows) Close() error {
	err := r.fullRows.Close()
	if r.statement != nil {
		r.conn.done(r.statement)
		r.statement = nil
	}
	return err
}
