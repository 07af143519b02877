package automation

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/objecthost/objecthost/services/data"
)

// dataTypes are the nodes that read and write records, in the name of the
// step's principal.
func (s *Service) dataTypes() []NodeType {
	const head = `{"type":"object","required":["objectName"],"properties":{"objectName":{"type":"string","xRef":{"kind":"object"}},`
	const filter = `"filter":{"type":["object","array"],"description":"Conditions; without multi a single id"}`
	const fields = `"fields":{"type":"object","description":"Values by field"}`
	return []NodeType{
		{
			Type: "get_record", Name: "Get Records", Category: "data", Icon: "search", Description: "Query records of an object.", Run: s.getRecord,
			ConfigSchema: json.RawMessage(head + filter + `,"fields":{"type":"array","items":{"type":"string"}},
				"limit":{"type":"integer","minimum":1,"maximum":10000},"outputVariable":{"type":"string"}}}`),
		},
		{
			Type: "create_record", Name: "Create Record", Category: "data", Icon: "plus-circle", Description: "Create a record.",
			Effect: effectRecord, Run: s.createRecord,
			ConfigSchema: json.RawMessage(head + fields + `,"outputVariable":{"type":"string"}}}`),
		},
		{
			Type: "update_record", Name: "Update Records", Category: "data", Icon: "edit", Description: "Update the records that a filter selects.",
			Effect: effectRecord, Run: s.updateRecord,
			ConfigSchema: json.RawMessage(head + filter + `,` + fields + `,"multi":{"type":"boolean"}}}`),
		},
		{
			Type: "delete_record", Name: "Delete Records", Category: "data", Icon: "trash", Description: "Delete the records that a filter selects.",
			Effect: effectRecord, Run: s.deleteRecord,
			ConfigSchema: json.RawMessage(head + filter + `,"multi":{"type":"boolean"}}}`),
		},
	}
}

// callerOf refuses data nodes of a flow that runs as its user when there is
// none.
func callerOf(s *Step) error {
	if p := s.Principal(); !p.Authenticated() {
		return &GuardError{fmt.Sprintf("%s: the flow runs as its user, but nobody triggered it: set runAs to system", s.Node.Type)}
	}
	return nil
}

// selection reads a node's filter.
func (s *Service) selection(step *Step) (data.Filter, error) {
	object := text(step.Config, "objectName", "")
	schema, err := s.engine.Object(object)
	if err != nil {
		return data.Filter{}, err
	}
	source, given := step.Config["filter"]
	if !given {
		return data.Filter{}, nil
	}
	raw, err := encodeJSON(source)
	if err != nil {
		return data.Filter{}, err
	}
	return data.ParseFilter(schema, raw)
}

// single is the id that a filter without multi has to be.
func single(step *Step) (string, error) {
	filter, _ := step.Config["filter"].(map[string]any)
	id, ok := filter["id"].(string)
	if !ok || len(filter) != 1 || id == "" {
		return "", &GuardError{fmt.Sprintf("%s: without multi the filter must be {\"id\": …} and nothing else", step.Node.Type)}
	}
	return id, nil
}

func multi(step *Step) bool { m, _ := step.Config["multi"].(bool); return m }

func (s *Service) getRecord(ctx context.Context, step *Step) (Result, error) {
	if err := callerOf(step); err != nil {
		return Result{}, err
	}
	where, err := s.selection(step)
	if err != nil {
		return Result{}, err
	}
	limit := 1
	if number, ok := step.Config["limit"].(json.Number); ok {
		n, err := number.Int64()
		if err != nil {
			return Result{}, err
		}
		limit = int(n)
	}
	query := data.Query{Where: where, Limit: &limit, NoCount: true}
	if fields, ok := step.Config["fields"].([]any); ok {
		query.Fields = []string{}
		for _, name := range fields {
			query.Fields = append(query.Fields, textOf(name))
		}
	}
	page, err := s.engine.Find(ctx, text(step.Config, "objectName", ""), query)
	if err != nil {
		return Result{}, err
	}
	r := Result{Selected: count(len(page.Records))}
	if limit > 1 {
		list := make([]any, len(page.Records))
		for i, record := range page.Records {
			list[i] = record
		}
		r.Output = map[string]any{"records": list}
		return r, nil
	}
	r.Output = map[string]any{"record": nil, "id": nil}
	if len(page.Records) == 1 {
		r.Output = map[string]any{"record": page.Records[0], "id": page.Records[0]["id"]}
	}
	return r, nil
}

func (s *Service) createRecord(ctx context.Context, step *Step) (Result, error) {
	if err := callerOf(step); err != nil {
		return Result{}, err
	}
	object := text(step.Config, "objectName", "")
	written, err := s.engine.Create(ctx, object, fieldsOf(step))
	if err != nil {
		return Result{}, err
	}
	record, err := s.visible(object, written.Record)
	return Result{Output: map[string]any{"id": written.ID, "record": record}, Acted: count(1)}, err
}

func fieldsOf(step *Step) data.Record {
	fields, _ := step.Config["fields"].(map[string]any)
	copied := make(data.Record, len(fields))
	for name, value := range fields {
		copied[name] = value
	}
	return copied
}

func (s *Service) updateRecord(ctx context.Context, step *Step) (Result, error) {
	if err := callerOf(step); err != nil {
		return Result{}, err
	}
	object := text(step.Config, "objectName", "")
	if multi(step) {
		where, err := s.selection(step)
		if err != nil {
			return Result{}, err
		}
		n, err := s.engine.UpdateWhere(ctx, object, where, fieldsOf(step))
		return matched(n), err
	}
	id, err := single(step)
	if err != nil {
		return Result{}, err
	}
	written, err := s.engine.Update(ctx, object, id, fieldsOf(step), data.Match{})
	if err != nil {
		return Result{}, err
	}
	record, err := s.visible(object, written.Record)
	return Result{Output: map[string]any{"id": id, "result": record}, Acted: count(1)}, err
}

func (s *Service) deleteRecord(ctx context.Context, step *Step) (Result, error) {
	if err := callerOf(step); err != nil {
		return Result{}, err
	}
	object := text(step.Config, "objectName", "")
	if multi(step) {
		where, err := s.selection(step)
		if err != nil {
			return Result{}, err
		}
		n, err := s.engine.DeleteWhere(ctx, object, where)
		return matched(n), err
	}
	id, err := single(step)
	if err != nil {
		return Result{}, err
	}
	if err := s.engine.Delete(ctx, object, id, data.Match{}); err != nil {
		return Result{}, err
	}
	return deleted(id), nil
}

func deleted(id string) Result {
	return Result{Output: map[string]any{"id": id, "result": map[string]any{"id": id, "success": true}}, Acted: count(1)}
}

func matched(n int64) Result {
	return Result{Output: map[string]any{"result": map[string]any{"matched": n}}, Acted: count(int(n))}
}

// changed is the result of a data node as the write that it made shows it
// inside its transaction; ok is false for other writes, such as those of a
// cascade. It must equal what the node's Run returns.
func (s *Service) changed(step *Step, change *data.Change) (r Result, ok bool, err error) {
	switch {
	case step.Node.Type == "create_record" && change.Operation == data.OpCreate:
		record, err := s.visible(change.Object, change.After)
		return Result{Output: map[string]any{"id": change.ID, "record": record}, Acted: count(1)}, true, err
	case step.Node.Type == "update_record" && change.Operation == data.OpUpdateWhere && multi(step),
		step.Node.Type == "delete_record" && change.Operation == data.OpDeleteWhere && multi(step):
		return matched(change.Matched), true, nil
	case multi(step):
		return Result{}, false, nil
	}
	id, err := single(step)
	if err != nil || id != change.ID {
		return Result{}, false, nil //nolint:nilerr // the node itself refuses such a filter
	}
	switch {
	case step.Node.Type == "update_record" && change.Operation == data.OpUpdate:
		record, err := s.visible(change.Object, change.After)
		return Result{Output: map[string]any{"id": id, "result": record}, Acted: count(1)}, true, err
	case step.Node.Type == "delete_record" && change.Operation == data.OpDelete:
		return deleted(id), true, nil
	}
	return Result{}, false, nil
}

// visible is a record without its internal fields and with secrets masked.
func (s *Service) visible(object string, record data.Record) (map[string]any, error) {
	if record == nil {
		return nil, nil
	}
	schema, err := s.engine.Object(object)
	if err != nil {
		return nil, err
	}
	out := make(map[string]any, len(record))
	for name, value := range record {
		f, ok := schema.Field(name)
		switch {
		case ok && f.Internal:
		case ok && f.IsSealed() && value != nil:
			out[name] = data.Mask
		default:
			out[name] = value
		}
	}
	plainly, err := plain(out)
	if err != nil {
		return nil, err
	}
	return plainly.(map[string]any), nil
}
