package rest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
)

// Limits of imports.
const (
	maxDirectRows   = 5_000   // rows of a JSON body that are imported while the client waits
	maxLine         = 1 << 20 // bytes of a row in JSON lines
	maxStreamReport = 1_000   // failures that the answer to a streamed import lists
)

// importAnswer tells what became of the rows. Of a streamed import only the
// failures are listed, and not all of them when there are many.
type importAnswer struct {
	Object    string           `json:"object"`
	DryRun    bool             `json:"dryRun"`
	WriteMode data.ImportMode  `json:"writeMode"`
	Total     int              `json:"total"`
	OK        int              `json:"ok"`
	Errors    int              `json:"errors"`
	Created   int              `json:"created"`
	Updated   int              `json:"updated"`
	Skipped   int              `json:"skipped"`
	Results   []data.ImportRow `json:"results"`
	Truncated bool             `json:"resultsTruncated,omitempty"`
}

// add counts rows and lists them, all or the failures.
func (a *importAnswer) add(rows []data.ImportRow, all bool) {
	for _, row := range rows {
		a.Total++
		switch row.Action {
		case data.ActionCreated:
			a.Created++
		case data.ActionUpdated:
			a.Updated++
		case data.ActionSkipped:
			a.Skipped++
		}
		if row.OK {
			a.OK++
		} else {
			a.Errors++
		}
		switch {
		case !all && row.OK:
		case !all && len(a.Results) == maxStreamReport:
			a.Truncated = true
		default:
			a.Results = append(a.Results, row)
		}
	}
}

// admitImport asks for what the mode does.
func (s *Server) admitImport(r *http.Request, mode data.ImportMode) error {
	switch mode {
	case data.ImportInsert:
		return s.admit(r, object.MethodCreate)
	case data.ImportUpdate:
		return s.admit(r, object.MethodUpdate, object.MethodList)
	default: // the engine refuses what is none
		return s.admit(r, object.MethodCreate, object.MethodUpdate, object.MethodList)
	}
}

// serveImport imports rows while the client waits: those of a JSON body, or a
// stream of CSV or JSON lines, whose options are query parameters.
func (s *Server) serveImport(w http.ResponseWriter, r *http.Request) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err == nil && (kind == "text/csv" || kind == "application/x-ndjson" || kind == "application/jsonl") {
		return s.serveStream(w, r, kind == "text/csv")
	}
	req, source, err := readImport(r)
	if err != nil {
		return err
	}
	if err := s.admitImport(r, req.Mode); err != nil {
		return err
	}
	rows, err := rowsOf(source)
	if err != nil {
		return err
	}
	if len(rows) > maxDirectRows {
		return &data.Error{Code: data.CodeBatchTooLarge, Count: len(rows), Max: maxDirectRows, Message: fmt.Sprintf(
			"An import holds at most %d rows, got %d: send them to import/jobs, or as a stream of text/csv or application/x-ndjson.", maxDirectRows, len(rows))}
	}
	i, err := s.data.NewImport(r.Context(), r.PathValue("object"), req)
	if err != nil {
		return err
	}
	answer := importAnswer{Object: r.PathValue("object"), DryRun: req.DryRun, WriteMode: req.Mode, Results: []data.ImportRow{}}
	for batch := range slices.Chunk(rows, data.MaxBatch) {
		done, err := i.Batch(r.Context(), batch)
		if err != nil {
			return err
		}
		answer.add(done, true)
	}
	return writeJSON(w, http.StatusOK, answer)
}

// rowsOf reads a source into memory, which a body's limit bounds.
func rowsOf(source data.ImportSource) ([]data.Record, error) {
	if source.CSV == "" {
		return source.Rows, nil
	}
	table, err := data.NewTable(strings.NewReader(source.CSV))
	if err != nil {
		return nil, err
	}
	var rows []data.Record
	for {
		row, err := table.Next()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
}

// readImport reads a JSON body: {"format", "csv" or "rows", "mapping",
// "writeMode", "matchFields", …}.
func readImport(r *http.Request) (data.ImportRequest, data.ImportSource, error) {
	body, err := readObject(r)
	if err != nil {
		return data.ImportRequest{}, data.ImportSource{}, err
	}
	m := membersOf(body)
	m.only("format", "csv", "rows", "xlsxBase64", "sheet", "mapping", "mappingName", "dryRun", "writeMode", "matchFields", "runAutomations",
		"treatAsHistorical", "trimWhitespace", "nullValues", "createMissingOptions", "skipBlankMatchKey")
	if err := unsupportedImport(m); err != nil {
		return data.ImportRequest{}, data.ImportSource{}, err
	}
	source := data.ImportSource{CSV: m.text("csv")}
	for i, value := range m.list("rows") {
		source.Rows = append(source.Rows, m.item("rows", i, value).object)
	}
	req := data.ImportRequest{
		Mode: data.ImportMode(m.text("writeMode")), MatchFields: m.texts("matchFields"), NullValues: m.texts("nullValues"),
		DryRun: is(m.flag("dryRun")), SkipBlankMatchKey: is(m.flag("skipBlankMatchKey")), KeepSpace: !orTrue(m.flag("trimWhitespace")),
		Text: source.CSV != "", Mapping: mappingOf(m),
	}
	if req.Mode == "" {
		req.Mode = data.ImportInsert
	}
	if (source.CSV == "") == (body["rows"] == nil) {
		m.refuse("rows", "or 'csv' is needed, one of them")
	}
	if format := m.text("format"); format != "" && (format == "csv") != (source.CSV != "") {
		m.refuse("format", "does not fit: csv goes with 'csv', json with 'rows'")
	}
	return req, source, *m.err
}

// unsupportedImport refuses options of the protocol that this host does not
// have, instead of importing something else than was asked for.
func unsupportedImport(m members) error {
	switch {
	case m.object["xlsxBase64"] != nil, m.text("format") == "xlsx":
		return notImplemented("Workbooks are not imported: send csv or rows.")
	case m.object["mappingName"] != nil:
		return notImplemented("Mappings have no names on this host: send 'mapping'.")
	case !orTrue(m.flag("runAutomations")):
		return notImplemented("Records are never written without their events: leave 'runAutomations' out.")
	case is(m.flag("treatAsHistorical")):
		return notImplemented("The time of a record is that of its import: leave 'treatAsHistorical' out.")
	case is(m.flag("createMissingOptions")):
		return notImplemented("An import changes no definitions: leave 'createMissingOptions' out.")
	}
	return nil
}

func is(flag *bool) bool     { return flag != nil && *flag }
func orTrue(flag *bool) bool { return flag == nil || *flag }

// mappingOf reads {"column": "field"} or a list of {"sourceField",
// "targetField", …}.
func mappingOf(m members) []data.ImportMapping {
	var out []data.ImportMapping
	if columns, ok := m.object["mapping"].(map[string]any); ok {
		for _, source := range slices.Sorted(maps.Keys(columns)) {
			out = append(out, data.ImportMapping{Source: source, Target: m.inner("mapping").text(source)})
		}
		return out
	}
	for i, value := range m.list("mapping") {
		one := m.item("mapping", i, value)
		one.only("sourceField", "targetField", "targetLabel", "transform", "defaultValue", "required")
		out = append(out, data.ImportMapping{
			Source: one.text("sourceField"), Target: one.text("targetField"), Transform: one.text("transform"),
			Default: one.object["defaultValue"], Required: is(one.flag("required")),
		})
	}
	return out
}

// serveStream imports rows as they arrive, so that the size of a file does not
// matter to the host. Batches that are written stay when a later line is wrong;
// the refusal tells how many rows there were.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request, isCSV bool) error {
	req, err := streamRequest(r, isCSV)
	if err != nil {
		return err
	}
	if err := s.admitImport(r, req.Mode); err != nil {
		return err
	}
	i, err := s.data.NewImport(r.Context(), r.PathValue("object"), req)
	if err != nil {
		return err
	}
	next, err := s.rowReader(w, r, i, isCSV)
	if err != nil {
		return err
	}
	answer := importAnswer{Object: r.PathValue("object"), DryRun: req.DryRun, WriteMode: req.Mode, Results: []data.ImportRow{}}
	for ended := false; !ended; {
		var batch []data.Record
		for len(batch) < data.MaxBatch && !ended {
			row, err := next()
			if ended = errors.Is(err, io.EOF); ended {
				break
			}
			if err != nil {
				return afterRows(err, answer.Total)
			}
			batch = append(batch, row)
		}
		done, err := i.Batch(r.Context(), batch)
		if err != nil {
			return err
		}
		answer.add(done, false)
	}
	return writeJSON(w, http.StatusOK, answer)
}

// afterRows adds to a refusal how many rows were taken before it.
func afterRows(err error, rows int) error {
	var known *data.Error
	if errors.As(err, &known) && rows > 0 {
		with := *known
		with.Message = fmt.Sprintf("%s The %d rows in front of it were imported.", known.Message, rows)
		return &with
	}
	return err
}

// streamRequest reads the options of a streamed import.
func streamRequest(r *http.Request, isCSV bool) (data.ImportRequest, error) {
	params, err := queryParams(r)
	if err != nil {
		return data.ImportRequest{}, err
	}
	if err := onlyParams(params, "writeMode", "matchFields", "dryRun", "nullValues", "skipBlankMatchKey", "trimWhitespace"); err != nil {
		return data.ImportRequest{}, err
	}
	req := data.ImportRequest{
		Mode: data.ImportMode(params.Get("writeMode")), MatchFields: commas(params, "matchFields"), NullValues: commas(params, "nullValues"), Text: isCSV,
	}
	if req.Mode == "" {
		req.Mode = data.ImportInsert
	}
	trim := true
	for name, flag := range map[string]*bool{"dryRun": &req.DryRun, "skipBlankMatchKey": &req.SkipBlankMatchKey, "trimWhitespace": &trim} {
		if !params.Has(name) {
			continue
		}
		if *flag, err = strconv.ParseBool(params.Get(name)); err != nil {
			return req, invalidRequest(fmt.Sprintf("'%s' must be true or false.", name))
		}
	}
	req.KeepSpace = !trim
	return req, nil
}

func commas(params url.Values, name string) []string {
	if !params.Has(name) {
		return nil
	}
	return strings.Split(params.Get(name), ",")
}

// rowReader reads rows of a body that may be larger than others, as long as it
// keeps coming.
func (s *Server) rowReader(w http.ResponseWriter, r *http.Request, i *data.Import, isCSV bool) (func() (data.Record, error), error) {
	body := &patientReader{
		body: http.MaxBytesReader(w, exchangeOf(r.Context()).body, s.cfg.ImportLimit), control: http.NewResponseController(w), timeout: s.cfg.ReadTimeout,
	}
	if isCSV {
		table, err := data.NewTable(body)
		if err != nil {
			return nil, bodyError(err)
		}
		if err := i.CheckColumns(table.Columns()); err != nil {
			return nil, err
		}
		return func() (data.Record, error) {
			row, err := table.Next()
			return row, bodyError(err)
		}, nil
	}
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	number := 0
	return func() (data.Record, error) {
		for lines.Scan() {
			number++
			line := bytes.TrimSpace(lines.Bytes())
			if len(line) == 0 {
				continue
			}
			row, err := data.DecodeRecord(line)
			var known *data.Error
			if errors.As(err, &known) {
				return nil, &data.Error{Code: known.Code, Message: fmt.Sprintf("Line %d: %s.", number, known.Message)}
			}
			return row, err
		}
		if errors.Is(lines.Err(), bufio.ErrTooLong) {
			return nil, &data.Error{Code: data.CodeInvalidRequest, Message: fmt.Sprintf("Line %d is longer than %d bytes.", number+1, maxLine)}
		}
		if err := lines.Err(); err != nil {
			return nil, bodyError(err)
		}
		return nil, io.EOF
	}, nil
}

// patientReader gives the client a fresh deadline with every part that arrives.
type patientReader struct {
	body    io.Reader
	control *http.ResponseController
	timeout time.Duration
}

// Read implements io.Reader.
func (p *patientReader) Read(b []byte) (int, error) {
	_ = p.control.SetReadDeadline(time.Now().Add(p.timeout)) // tests have no deadlines
	return p.body.Read(b)
}
