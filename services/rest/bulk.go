package rest

import (
	"net/http"
	"strconv"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
)

// createdAnswer is what createMany answers, with the records in the order of the
// request.
type createdAnswer struct {
	Object  string         `json:"object"`
	Records []data.Record  `json:"records"`
	Count   int            `json:"count"`
	Dropped []data.Dropped `json:"droppedFields,omitempty"`
}

// serveCreateMany creates the records of a bare JSON array, all or none.
func (s *Server) serveCreateMany(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(r)
	if err != nil {
		return err
	}
	list, ok := body.([]any)
	if !ok {
		return invalidRequest("Request body must be a JSON array of records.")
	}
	rows := make([]data.Record, len(list))
	for i, value := range list {
		if rows[i], ok = value.(map[string]any); !ok {
			return invalidRequest("Record " + strconv.Itoa(i) + " of the request body must be a JSON object.")
		}
	}
	many, err := s.data.CreateMany(r.Context(), r.PathValue("object"), rows)
	if err != nil {
		return err
	}
	tellDropped(w, many.Dropped)
	return writeJSON(w, http.StatusCreated, createdAnswer{
		Object: r.PathValue("object"), Records: many.Records, Count: len(many.Records), Dropped: many.Dropped,
	})
}

// serveUpdateMany reads {"records": [{"id", "data"}], "options"}.
func (s *Server) serveUpdateMany(w http.ResponseWriter, r *http.Request) error {
	return s.serveBulk(w, r, func(m members) data.Batch {
		m.only("records", "options")
		batch := data.Batch{Operation: "update", Options: batchOptions(m)}
		for i, value := range m.required("records") {
			row := m.item("records", i, value)
			row.only("id", "data")
			batch.Records = append(batch.Records, batchItem(row))
		}
		return batch
	})
}

// serveDeleteMany reads {"ids": [], "options"}.
func (s *Server) serveDeleteMany(w http.ResponseWriter, r *http.Request) error {
	return s.serveBulk(w, r, func(m members) data.Batch {
		m.only("ids", "options")
		m.required("ids")
		batch := data.Batch{Operation: "delete", Options: batchOptions(m)}
		for _, id := range m.texts("ids") {
			batch.Records = append(batch.Records, data.BatchItem{ID: id})
		}
		return batch
	})
}

// serveBatch reads {"operation", "records": [{"id", "externalId", "data"}],
// "options"}.
func (s *Server) serveBatch(w http.ResponseWriter, r *http.Request) error {
	return s.serveBulk(w, r, func(m members) data.Batch {
		m.only("operation", "records", "options")
		batch := data.Batch{Operation: m.text("operation"), Options: batchOptions(m)}
		for i, value := range m.required("records") {
			row := m.item("records", i, value)
			row.only("id", "externalId", "data")
			batch.Records = append(batch.Records, batchItem(row))
		}
		return batch
	})
}

func batchItem(row members) data.BatchItem {
	return data.BatchItem{ID: row.text("id"), ExternalID: row.text("externalId"), Data: row.inner("data").object}
}

func batchOptions(m members) data.BatchOptions {
	options := m.inner("options")
	options.only("atomic", "returnRecords", "continueOnError")
	return data.BatchOptions{
		Atomic:          is(options.flag("atomic")),
		ContinueOnError: is(options.flag("continueOnError")),
		ReturnRecords:   options.flag("returnRecords"),
	}
}

// batchMethods is what an object must be open to for each operation of a batch,
// besides bulk: an object whose records cannot be created one by one cannot have
// them created by the dozen either.
var batchMethods = map[string][]string{
	"create": {object.MethodCreate},
	"update": {object.MethodUpdate},
	"upsert": {object.MethodCreate, object.MethodUpdate},
	"delete": {object.MethodDelete},
}

// serveBulk reads a batch and answers what became of each record. The status is
// 200 also when records failed.
func (s *Server) serveBulk(w http.ResponseWriter, r *http.Request, read func(members) data.Batch) error {
	body, err := readObject(r)
	if err != nil {
		return err
	}
	m := membersOf(body)
	batch := read(m)
	if *m.err != nil {
		return *m.err
	}
	// An unknown operation has no methods; the engine refuses it by name.
	if err := s.admit(r, batchMethods[batch.Operation]...); err != nil {
		return err
	}
	result, err := s.data.Batch(r.Context(), r.PathValue("object"), batch)
	if err != nil {
		return err
	}
	var dropped []data.Dropped
	for _, row := range result.Results {
		dropped = append(dropped, row.Dropped...)
	}
	tellDropped(w, dropped)
	return writeJSON(w, http.StatusOK, result)
}
