package rest

import (
	"net/http"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
)

// batchPath is the parent of the data routes' own base: clients derive it so.
const batchPath = apiBase + "/batch"

// transactionAnswer has one row per operation, for a delete its id alone.
type transactionAnswer struct {
	Results []data.Record  `json:"results"`
	Dropped []droppedIndex `json:"droppedFields,omitempty"`
}

// droppedIndex tells of which operation values were not written.
type droppedIndex struct {
	data.Dropped
	Index int `json:"index"`
}

func (s *Server) transactionRoutes() []OwnedRoute {
	return []OwnedRoute{
		own(http.MethodPost, batchPath, "Write records of several objects, all or none", s.serveTransaction, flatFamily),
	}
}

// serveTransaction does {"operations": [{"object", "action", "id"?, "data"?}],
// "atomic"?} in one transaction. {"$ref": n} in data is the id that operation n
// wrote.
func (s *Server) serveTransaction(w http.ResponseWriter, r *http.Request) error {
	steps, err := readSteps(r)
	if err != nil {
		return err
	}
	for _, step := range steps {
		if err := s.admitObject(r, step.Object, methodOf[step.Action]...); err != nil {
			return err
		}
	}
	results, err := s.data.Transaction(r.Context(), steps)
	if err != nil {
		return err
	}
	answer := transactionAnswer{Results: make([]data.Record, len(results))}
	var dropped []data.Dropped
	for i, result := range results {
		answer.Results[i] = result.Record
		for _, d := range result.Dropped {
			dropped = append(dropped, d)
			answer.Dropped = append(answer.Dropped, droppedIndex{Dropped: d, Index: i})
		}
	}
	tellDropped(w, dropped)
	return writeJSON(w, http.StatusOK, answer)
}

// methodOf is what an object has to be open to for each action. An unknown
// action has none; the engine refuses it by name.
var methodOf = map[string][]string{
	"create": {object.MethodCreate}, "update": {object.MethodUpdate}, "delete": {object.MethodDelete},
}

func readSteps(r *http.Request) ([]data.Step, error) {
	body, err := readObject(r)
	if err != nil {
		return nil, err
	}
	m := membersOf(body)
	m.only("operations", "atomic")
	if atomic := m.flag("atomic"); atomic != nil && !*atomic {
		return nil, &data.Error{Code: data.CodeBatchNotAtomic, Message: "A transaction over several objects is always atomic; leave 'atomic' out or send true."}
	}
	var steps []data.Step
	for i, value := range m.required("operations") {
		op := m.item("operations", i, value)
		op.only("object", "action", "id", "data")
		step := data.Step{Object: op.text("object"), Action: op.text("action"), ID: op.text("id"), Data: op.inner("data").object}
		if step.Object == "" {
			op.refuse("object", "is required")
		}
		if step.Action == "" {
			step.Action = "create" // as the protocol has it
		}
		steps = append(steps, step)
	}
	return steps, *m.err
}
