package sqlite

import (
	"sync"

	"modernc.org/sqlite"

	"github.com/objecthost/objecthost/storage"
)

// Collation is the name of the collation that orders decimals: a column
// TEXT COLLATE decimal sorts and compares like NUMERIC.
const Collation = "decimal"

// registerDecimal adds the collation to all connections opened from now on.
var registerDecimal = sync.OnceFunc(func() {
	sqlite.MustRegisterCollationUtf8(Collation, storage.CompareDecimal)
})
