// Package storage opens the host's database, SQLite or PostgreSQL, and gives
// every other package one way to use it.
//
// Transactions travel in the context. [DB.InTx] opens one and hands its
// function a context that carries it; [DB.Read], [DB.Write] and [DB.Bun] pick
// the connection from the context they are given. So a record, its event and
// the deliveries that follow from it commit or roll back together, whichever
// packages write them:
//
//	err := db.InTx(ctx, func(ctx context.Context) error {
//		if _, err := db.Write(ctx).ExecContext(ctx, `INSERT …`); err != nil {
//			return err
//		}
//		storage.AfterCommit(ctx, wakeDispatcher)
//		return outbox.Enqueue(ctx, request) // joins the same transaction
//	})
//
// The rules of InTx:
//
//   - A nested InTx is a savepoint. When it fails, the outer one stays usable.
//   - A statement that fails ends its level, on both dialects: only rolling
//     back is left ([ErrTxAborted]). Put a statement that may fail, and whose
//     failure is to be survived, into a nested InTx.
//   - A transaction that lost against another (serialization failure, deadlock,
//     busy, lost connection) is rolled back and its function called again, but
//     only at the outermost level and only a bounded number of times. The
//     function must not keep side effects outside the transaction;
//     [AfterCommit] and [OnRollback] are for those.
//   - When the context ends before the function returns, everything is rolled
//     back.
//   - A context used after the end of its transaction gives [ErrTxFinished].
//   - Two databases do not mix: a context may carry a transaction of each.
//
// The package itself names no driver: package dsn opens a database by its
// DSN, packages postgres and sqlite implement [Driver].
package storage
