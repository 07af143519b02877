package rest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
)

// foundAnswer is a list of records.
type foundAnswer struct {
	Object  string        `json:"object"`
	Records []data.Record `json:"records"`
	Total   *int          `json:"total,omitempty"`
	// TotalCapped tells that there are more matches than are counted.
	TotalCapped bool `json:"totalCapped,omitempty"`
	HasMore     bool `json:"hasMore"`
	// NextCursor is there when the request had a cursor and there is more.
	NextCursor string `json:"nextCursor,omitempty"`
}

// serveFind finds records by the query parameters of a GET.
func (s *Server) serveFind(w http.ResponseWriter, r *http.Request) error {
	params, err := queryParams(r)
	if err != nil {
		return err
	}
	schema, err := s.data.Object(r.PathValue("object"))
	if err != nil {
		return err
	}
	query, err := data.ParseQueryParams(schema, params)
	if err != nil {
		return err
	}
	return s.find(w, r, query)
}

// serveQuery finds records by the query in the body.
func (s *Server) serveQuery(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(r)
	if err != nil {
		return err
	}
	schema, err := s.data.Object(r.PathValue("object"))
	if err != nil {
		return err
	}
	query, err := data.ParseQueryBody(schema, body)
	if err != nil {
		return err
	}
	return s.find(w, r, query)
}

func (s *Server) find(w http.ResponseWriter, r *http.Request, query data.Query) error {
	name := r.PathValue("object")
	unlimited, err := s.limit(name, &query)
	if err != nil {
		return err
	}
	page, err := s.timed(r.Context(), name, query)
	if err != nil {
		return err
	}
	if unlimited && page.HasMore {
		return &requestError{
			status: http.StatusBadRequest, code: codeResultTooLarge,
			message: fmt.Sprintf("More than %d records match. Read them in pages, with 'top' and 'cursor', or export them.", s.cfg.MaxPageSize),
			extra:   map[string]any{"object": name, "max": s.cfg.MaxPageSize},
		}
	}
	answer := foundAnswer{
		Object: name, Records: page.Records,
		Total: page.Total, TotalCapped: page.TotalCapped, HasMore: page.HasMore, NextCursor: page.NextCursor,
	}
	if answer.Records == nil {
		answer.Records = []data.Record{}
	}
	return writeJSON(w, http.StatusOK, answer)
}

// limit bounds a page. A query without a limit means everything, as long as
// that is no more than a page may hold.
func (s *Server) limit(name string, query *data.Query) (unlimited bool, err error) {
	switch {
	case query.Limit == nil:
		most := s.cfg.MaxPageSize
		query.Limit = &most
		return true, nil
	case *query.Limit > s.cfg.MaxPageSize:
		return false, &requestError{
			status: http.StatusBadRequest, code: codePageTooLarge,
			message: fmt.Sprintf("A page holds at most %d records, %d were asked for.", s.cfg.MaxPageSize, *query.Limit),
			extra:   map[string]any{"object": name, "max": s.cfg.MaxPageSize},
		}
	}
	return false, nil
}

// timed finds within the time that a query may take. Filters on fields without
// an index may have to look through a whole table.
func (s *Server) timed(ctx context.Context, name string, query data.Query) (*data.Page, error) {
	limited, cancel := context.WithTimeout(ctx, s.cfg.QueryTimeout)
	defer cancel()
	page, err := s.data.Find(limited, name, query)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return nil, &requestError{
			status: http.StatusGatewayTimeout, code: codeQueryTimeout,
			message: fmt.Sprintf("The query was given up after %s. Filter or sort by a field that has an index.", s.cfg.QueryTimeout),
			extra:   map[string]any{"object": name},
		}
	}
	return page, err
}

// getParams are the query parameters that reading one record takes.
var getParams = []string{"fields", "select", "$select", "expand", "populate", "$expand"}

// serveGet reads one record, with the selected fields and with references
// replaced by the records that they point at. The latter is a query, so it
// takes the permission to list besides the one to get.
func (s *Server) serveGet(w http.ResponseWriter, r *http.Request) error {
	name, id := r.PathValue("object"), r.PathValue("id")
	params, err := queryParams(r)
	if err != nil {
		return err
	}
	if err := onlyParams(params, getParams...); err != nil {
		return err
	}
	schema, err := s.data.Object(name)
	if err != nil {
		return err
	}
	query, err := data.ParseQueryParams(schema, params)
	if err != nil {
		return err
	}
	record, err := s.one(r, name, id, query)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, recordAnswer{Object: name, ID: id, Record: record})
}

func (s *Server) one(r *http.Request, name, id string, query data.Query) (data.Record, error) {
	if len(query.Expand) == 0 {
		return s.data.Get(r.Context(), name, id, query.Fields...)
	}
	if err := s.admit(r, object.MethodList); err != nil {
		return nil, err
	}
	query.Where = data.Eq("id", id)
	page, err := s.timed(r.Context(), name, query)
	if err != nil {
		return nil, err
	}
	if len(page.Records) == 0 {
		return s.data.Get(r.Context(), name, id) // for its own refusal
	}
	return page.Records[0], nil
}

// queryParams reads the query of a request. What net/http's own reader drops
// without a word is refused.
func queryParams(r *http.Request) (url.Values, error) {
	params, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, invalidRequest("Query string is malformed.")
	}
	for key, values := range params {
		if !storable(key) || slices.ContainsFunc(values, func(v string) bool { return !storable(v) }) {
			return nil, invalidRequest("Query string must be valid UTF-8 without NUL.")
		}
	}
	return params, nil
}

// onlyParams refuses parameters that a route does not read: a misspelled one
// must not be taken for an absent one.
func onlyParams(params url.Values, known ...string) error {
	for _, key := range slices.Sorted(maps.Keys(params)) {
		if !slices.Contains(known, key) {
			return &data.Error{Code: data.CodeUnsupportedParam, Message: fmt.Sprintf("Query parameter '%s' is not supported here.", clip(key))}
		}
	}
	return nil
}
