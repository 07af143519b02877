package rest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
)

const (
	objectPath = dataBase + "/{object}"
	recordPath = objectPath + "/{id}"
)

// recordAnswer is one record. Its id stands beside it too, for clients that read
// with a selection that leaves it out.
type recordAnswer struct {
	Object string `json:"object"`
	ID     string `json:"id"`
	// SourceID is the record that a copy was made of.
	SourceID string         `json:"sourceId,omitempty"`
	Record   data.Record    `json:"record"`
	Dropped  []data.Dropped `json:"droppedFields,omitempty"`
}

type deletedAnswer struct {
	Object  string `json:"object"`
	ID      string `json:"id"`
	Success bool   `json:"success"`
}

// dataRoutes are the routes of the data API. The names of the bulk routes may be
// ids of records as well: a POST means the route, every other method the record.
func (s *Server) dataRoutes() []OwnedRoute {
	const get, post, patch, del = http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete
	return []OwnedRoute{
		s.onObject(get, objectPath, "Find records", object.MethodList, s.serveFind),
		s.onObject(post, objectPath, "Create a record", object.MethodCreate, s.serveCreate),
		s.onObject(post, objectPath+"/query", "Find records by a query in the body", object.MethodList, s.serveQuery),
		s.onObject(post, objectPath+"/createMany", "Create records, all or none", object.MethodCreate, s.serveCreateMany),
		s.onObject(post, objectPath+"/updateMany", "Change records", object.MethodBulk, s.serveUpdateMany),
		s.onObject(post, objectPath+"/deleteMany", "Delete records", object.MethodBulk, s.serveDeleteMany),
		s.onObject(post, objectPath+"/batch", "Write records", object.MethodBulk, s.serveBatch),
		s.onObject(get, recordPath, "Read a record", object.MethodGet, s.serveGet),
		s.onObject(patch, recordPath, "Change a record", object.MethodUpdate, s.serveUpdate),
		s.onObject(del, recordPath, "Delete a record", object.MethodDelete, s.serveDelete),
		s.onObject(post, recordPath+"/undelete", "Take a record out of the trash", object.MethodUpdate, s.serveUndelete),
		s.onObject(post, recordPath+"/clone", "Copy a record", object.MethodCreate, s.serveClone),
	}
}

// operations is what a caller does by each method of an object's API.
var operations = map[string]identity.Operation{
	object.MethodGet:    identity.OperationRead,
	object.MethodList:   identity.OperationList,
	object.MethodCreate: identity.OperationCreate,
	object.MethodUpdate: identity.OperationUpdate,
	object.MethodDelete: identity.OperationDelete,
}

// onObject makes a data route for one method of the object's API.
func (s *Server) onObject(method, pattern, summary, apiMethod string, serve handler) OwnedRoute {
	return own(method, pattern, summary, func(w http.ResponseWriter, r *http.Request) error {
		if err := s.admit(r, apiMethod); err != nil {
			return err
		}
		return serve(w, r)
	}, flatFamily)
}

// admit lets a caller through that has the permission, when the object is open
// to the method. The permission comes first: others need not learn which objects
// there are and what they allow.
func (s *Server) admit(r *http.Request, apiMethods ...string) error {
	return s.admitObject(r, r.PathValue("object"), apiMethods...)
}

// admitObject is admit for an object that the path does not name.
func (s *Server) admitObject(r *http.Request, name string, apiMethods ...string) error {
	for _, m := range apiMethods {
		if op, ok := operations[m]; ok {
			if err := s.auth.Can(r.Context(), op, name); err != nil {
				return err
			}
		}
	}
	for _, m := range apiMethods {
		if err := s.data.CheckMethod(name, m); err != nil {
			return err
		}
	}
	return nil
}

// serveCreate answers 201 with the record as it is stored, defaults and system
// columns included.
func (s *Server) serveCreate(w http.ResponseWriter, r *http.Request) error {
	values, err := readObject(r)
	if err != nil {
		return err
	}
	result, err := s.data.Create(r.Context(), r.PathValue("object"), values)
	if err != nil {
		return err
	}
	return writeRecord(w, r, http.StatusCreated, result)
}

// serveUpdate changes the given fields and answers with the whole record, so that
// the client has the version for its next If-Match.
func (s *Server) serveUpdate(w http.ResponseWriter, r *http.Request) error {
	values, err := readObject(r)
	if err != nil {
		return err
	}
	result, err := s.data.Update(r.Context(), r.PathValue("object"), r.PathValue("id"), values, matchOf(r))
	if err != nil {
		return err
	}
	return writeRecord(w, r, http.StatusOK, result)
}

func (s *Server) serveDelete(w http.ResponseWriter, r *http.Request) error {
	name, id := r.PathValue("object"), r.PathValue("id")
	if err := s.data.Delete(r.Context(), name, id, matchOf(r)); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, deletedAnswer{Object: name, ID: id, Success: true})
}

func (s *Server) serveUndelete(w http.ResponseWriter, r *http.Request) error {
	result, err := s.data.Undelete(r.Context(), r.PathValue("object"), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeRecord(w, r, http.StatusOK, result)
}

// serveClone copies a record; {"overrides": {…}} replaces values of the copy.
func (s *Server) serveClone(w http.ResponseWriter, r *http.Request) error {
	body, err := readObject(r)
	if err != nil {
		return err
	}
	m := membersOf(body)
	m.only("overrides")
	overrides := m.inner("overrides").object
	if *m.err != nil {
		return *m.err
	}
	source := r.PathValue("id")
	result, err := s.data.Clone(r.Context(), r.PathValue("object"), source, overrides)
	if err != nil {
		return err
	}
	tellDropped(w, result.Dropped)
	return writeJSON(w, http.StatusCreated, recordAnswer{
		Object: r.PathValue("object"), ID: result.ID, SourceID: source, Record: result.Record, Dropped: result.Dropped,
	})
}

// matchOf reads If-Match, whose value is a record's updated_at. "*" asks for
// any version, which a record that is found always has.
func matchOf(r *http.Request) data.Match {
	value := strings.TrimSpace(r.Header.Get("If-Match"))
	if value == "*" {
		value = ""
	}
	return data.Match{IfMatch: value}
}

func writeRecord(w http.ResponseWriter, r *http.Request, status int, result data.Result) error {
	tellDropped(w, result.Dropped)
	return writeJSON(w, status, recordAnswer{
		Object: r.PathValue("object"), ID: result.ID, Record: result.Record, Dropped: result.Dropped,
	})
}

// tellDropped names values that were not written in a header, for clients that
// do not look into the answer: created_at;reason=readonly.
func tellDropped(w http.ResponseWriter, dropped []data.Dropped) {
	var parts []string
	for _, d := range dropped {
		for _, field := range d.Fields {
			part := fmt.Sprintf("%s;reason=%s", field, d.Reason)
			if !slices.Contains(parts, part) {
				parts = append(parts, part)
			}
		}
	}
	if len(parts) > 0 {
		w.Header().Set("X-ObjectStack-Dropped-Fields", strings.Join(parts, ", "))
	}
}
