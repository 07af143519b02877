package data

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Step is one write of a transaction over several objects.
type Step struct {
	Object string `json:"object"`
	// Action is create, update or delete.
	Action string `json:"action"`
	ID     string `json:"id,omitempty"`
	// Data may hold {"$ref": n} in place of a value: the id of the record that
	// step n (from 0, an earlier one) wrote.
	Data Record `json:"data,omitempty"`
}

// Transaction does all steps in their order, or none. It returns the outcome
// of every step, for a delete a record of its id alone. The first failure is
// returned, an *[Error] with the number of its step; handlers of
// [Engine.BeforeWrite] run inside the transaction, because later steps build on
// earlier ones. More than [MaxBatch] steps are refused.
func (e *Engine) Transaction(ctx context.Context, steps []Step) ([]Result, error) {
	if n := len(steps); n > MaxBatch {
		return nil, &Error{Code: CodeBatchTooLarge, Count: n, Max: MaxBatch, Message: fmt.Sprintf("A transaction holds at most %d operations, got %d", MaxBatch, n)}
	}
	var out []Result
	err := e.db.InTx(ctx, func(ctx context.Context) error {
		out = make([]Result, 0, len(steps))
		ids := make([]string, 0, len(steps))
		for i, step := range steps {
			result, err := e.step(ctx, i, step, ids)
			if err != nil {
				return atStep(err, i)
			}
			out, ids = append(out, result), append(ids, result.ID)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// atStep tells which step an error is about.
func atStep(err error, i int) error {
	var known *Error
	if !errors.As(err, &known) {
		return fmt.Errorf("operation %d: %w", i, err)
	}
	at := *known
	at.Operation = &i
	return &at
}

// step does one write as the caller of the transaction.
func (e *Engine) step(ctx context.Context, i int, step Step, ids []string) (Result, error) {
	bad := func(format string, args ...any) error {
		return &Error{Code: CodeInvalidRequest, Object: step.Object, Message: fmt.Sprintf("operation %d: ", i) + fmt.Sprintf(format, args...)}
	}
	values, err := resolveRefs(step.Data, ids)
	if err != nil {
		return Result{}, bad("%s", err)
	}
	record, _ := values.(map[string]any)
	if step.ID == "" && (step.Action == "update" || step.Action == "delete") {
		return Result{}, bad("an id is required to %s", step.Action)
	}
	switch step.Action {
	case "create":
		if step.ID != "" {
			record = clone(record)
			record["id"] = step.ID
		}
		return e.Create(ctx, step.Object, record)
	case "update":
		return e.Update(ctx, step.Object, step.ID, record, Match{})
	case "delete":
		return Result{ID: step.ID, Record: Record{"id": step.ID}}, e.Delete(ctx, step.Object, step.ID, Match{})
	default:
		return Result{}, bad("action must be create, update or delete, not %q", step.Action)
	}
}

// resolveRefs replaces {"$ref": n} by the id of step n.
func resolveRefs(value any, ids []string) (any, error) {
	switch value := value.(type) {
	case []any:
		out := make([]any, len(value))
		for i, item := range value {
			var err error
			if out[i], err = resolveRefs(item, ids); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		if ref, ok := value["$ref"]; ok && len(value) == 1 {
			return resolveRef(ref, ids)
		}
		out := make(map[string]any, len(value))
		for key, item := range value {
			var err error
			if out[key], err = resolveRefs(item, ids); err != nil {
				return nil, err
			}
		}
		return out, nil
	default:
		return value, nil
	}
}

// resolveRef looks back only: a later step has no id yet.
func resolveRef(ref any, ids []string) (any, error) {
	number, ok := ref.(json.Number)
	n, err := strconv.Atoi(number.String())
	if !ok || err != nil || n < 0 || n >= len(ids) {
		return nil, errors.New("$ref must be the number of an earlier operation")
	}
	return ids[n], nil
}
