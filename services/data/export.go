package data

import (
	"context"

	"github.com/objecthost/objecthost/core/identity"
)

// Export reads all records that a query selects, page by page in the order of
// the query, and hands them to write, up to MaxBatch·5 at once. Records that are
// changed meanwhile in what the query sorts by may come twice or not at all;
// others come once. The query's cursor, offset and groups are not used.
func (e *Engine) Export(ctx context.Context, objectName string, q Query, write func([]Record) error) error {
	page, left := 5*MaxBatch, -1
	if q.Limit != nil {
		left = *q.Limit
	}
	q.Cursor, q.Offset, q.NoCount, q.GroupBy, q.Aggregations = cursorStart, 0, true, nil, nil
	for left != 0 {
		if left > 0 {
			page = min(page, left)
		}
		q.Limit = &page
		found, err := e.Find(ctx, objectName, q)
		if err != nil {
			return err
		}
		if err := write(found.Records); err != nil {
			return err
		}
		if left > 0 {
			left -= len(found.Records)
		}
		if found.NextCursor == "" {
			return nil
		}
		q.Cursor = found.NextCursor
	}
	return nil
}

// Columns are the names of the fields that a caller may read, in their order.
func (e *Engine) Columns(ctx context.Context, objectName string) ([]string, error) {
	t, err := e.open(ctx, identity.OperationList, objectName)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range t.columns {
		c := &t.columns[i]
		if _, ok := t.visible(c.Name); ok && (c.Name != "deleted_at" && c.Name != "deleted_by") {
			names = append(names, c.Name)
		}
	}
	return names, nil
}
