package rest

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/objecthost/objecthost/services/data"
)

// exportFormats are the media types of the formats that lists are exported in.
var exportFormats = map[string]string{
	"csv": "text/csv; charset=utf-8", "json": "application/json", "jsonl": "application/x-ndjson",
}

// exportParams are parameters of an export besides those of a query.
var exportParams = []string{"format", "header", "orderby"}

// serveExport streams all records that a query selects, page by page, so that
// neither side ever holds all of them. A fault in the middle breaks the
// connection off: half a file must not pass for a whole one.
func (s *Server) serveExport(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("object")
	params, err := queryParams(r)
	if err != nil {
		return err
	}
	format, header, err := exportForm(params)
	if err != nil {
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
	if query.Offset > 0 || query.Cursor != "" || len(query.GroupBy)+len(query.Aggregations) > 0 {
		return invalidRequest("An export takes no offset, no cursor and no groups.")
	}
	columns := query.Fields
	if len(columns) == 0 {
		if columns, err = s.data.Columns(r.Context(), name); err != nil {
			return err
		}
	}
	out := newExporter(w, format, columns, header)
	begin := func() {
		h := w.Header()
		h.Set("Content-Type", exportFormats[format])
		h.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s.%s"`, name, format))
	}
	begun := false
	err = s.data.Export(r.Context(), name, query, func(records []data.Record) error {
		if !begun {
			begin()
			begun = true
			if err := out.begin(); err != nil {
				return err
			}
		}
		return out.write(records)
	})
	if err == nil {
		err = out.end()
	}
	if err != nil && begun {
		exchangeOf(r.Context()).cause = err
		panic(http.ErrAbortHandler) // serve knows it
	}
	return err
}

// exportForm takes the parameters off that are no query's.
func exportForm(params url.Values) (format string, header bool, err error) {
	format, header = "csv", true
	if params.Has("format") {
		format = params.Get("format")
	}
	if format == "ndjson" {
		format = "jsonl"
	}
	if format == "xlsx" || format == "parquet" {
		return "", false, notImplemented("Lists are exported as csv, json or jsonl, not as " + format + ".")
	}
	if exportFormats[format] == "" {
		return "", false, invalidRequest("'format' must be csv, json or jsonl.")
	}
	if text := params.Get("header"); text != "" {
		if header, err = strconv.ParseBool(text); err != nil {
			return "", false, invalidRequest("'header' must be true or false.")
		}
	}
	if sort := params.Get("orderby"); sort != "" {
		if params.Has("orderBy") {
			return "", false, invalidRequest("Query parameters 'orderby' and 'orderBy' mean the same.")
		}
		params.Set("orderBy", sort)
	}
	for _, name := range exportParams {
		params.Del(name)
	}
	return format, header, nil
}

// exporter writes records in one format.
type exporter struct {
	out     io.Writer
	flush   func()
	format  string
	columns []string
	header  bool
	csv     *csv.Writer
	json    *json.Encoder
	any     bool // a record was written
}

func newExporter(w http.ResponseWriter, format string, columns []string, header bool) *exporter {
	e := &exporter{out: w, format: format, columns: columns, header: header, flush: func() {}}
	if f, ok := w.(http.Flusher); ok {
		e.flush = f.Flush
	}
	e.csv, e.json = csv.NewWriter(w), json.NewEncoder(w)
	e.json.SetEscapeHTML(false)
	return e
}

func (e *exporter) begin() error {
	switch {
	case e.format == "csv" && e.header:
		return e.csv.Write(e.columns)
	case e.format == "json":
		_, err := io.WriteString(e.out, "[")
		return err
	}
	return nil
}

func (e *exporter) write(records []data.Record) error {
	for _, record := range records {
		if err := e.one(record); err != nil {
			return err
		}
	}
	e.csv.Flush()
	e.flush()
	return e.csv.Error()
}

func (e *exporter) one(record data.Record) error {
	if e.format == "csv" {
		cells := make([]string, len(e.columns))
		for i, name := range e.columns {
			var err error
			if cells[i], err = cell(record[name]); err != nil {
				return err
			}
		}
		return e.csv.Write(cells)
	}
	if e.format == "json" && e.any {
		if _, err := io.WriteString(e.out, ","); err != nil {
			return err
		}
	}
	e.any = true
	return e.json.Encode(record)
}

func (e *exporter) end() error {
	if e.format == "json" {
		_, err := io.WriteString(e.out, "]\n")
		return err
	}
	return nil
}

// cell writes a value as an import reads it: null is empty, lists and objects
// are JSON.
func cell(value any) (string, error) {
	switch value := value.(type) {
	case nil:
		return "", nil
	case string:
		return value, nil
	case json.Number:
		return value.String(), nil
	case bool:
		return strconv.FormatBool(value), nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "", errors.Join(errors.New("write a cell"), err)
	}
	return string(text), nil
}
