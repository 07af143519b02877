package automation

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
)

// Bounds of expressions. The cost is CEL's own measure of work; the bound keeps
// an expression over a large list from holding a worker.
const (
	maxExpressionLength = 10_000
	maxExpressionCost   = 1_000_000
)

// ExpressionError tells which expression is wrong, and how.
type ExpressionError struct {
	Source string
	Reason string
}

func (e *ExpressionError) Error() string {
	return fmt.Sprintf("expression %s: %s", strconv.Quote(shorten(e.Source, 120)), e.Reason)
}

// expression is a condition or value in CEL. Names are resolved when it is
// evaluated, because a flow's variables come into being as it runs: a name or
// key that is not there, and operands that do not go together, are errors then.
type expression struct {
	source  string
	program cel.Program
}

var celEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.OptionalTypes(), ext.Strings(), ext.Math(), ext.Lists(),
		cel.ParserRecursionLimit(60), cel.ParserExpressionSizeLimit(maxExpressionLength),
	)
})

// parseExpression reads a CEL expression. The error is an *ExpressionError.
func parseExpression(source string) (*expression, error) {
	refuse := func(reason string) (*expression, error) { return nil, &ExpressionError{source, reason} }
	if strings.TrimSpace(source) == "" {
		return refuse("is empty")
	}
	if len(source) > maxExpressionLength {
		return refuse(fmt.Sprintf("is longer than %d bytes", maxExpressionLength))
	}
	env, err := celEnvironment()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Parse(source)
	if issues.Err() != nil {
		first := issues.Errors()[0]
		return refuse(fmt.Sprintf("line %d, column %d: %s", first.Location.Line(), first.Location.Column()+1, oneLine(first.Message)))
	}
	program, err := env.Program(ast, cel.CostLimit(maxExpressionCost), cel.InterruptCheckFrequency(100))
	if err != nil {
		return refuse(oneLine(err.Error()))
	}
	return &expression{source, program}, nil
}

// eval computes the value in JSON's types. Whole numbers that fit into 64 bits
// are CEL's int, others its double.
func (x *expression) eval(ctx context.Context, lookup func(name string) (any, bool)) (value any, err error) {
	defer func() {
		if r := recover(); r != nil { // a defect in a function of the library must not end the host
			value, err = nil, &ExpressionError{x.source, fmt.Sprint("cannot be evaluated: ", r)}
		}
	}()
	out, _, err := x.program.ContextEval(ctx, activation(lookup))
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, &ExpressionError{x.source, oneLine(err.Error())}
	}
	value, err = fromCEL(out)
	if err != nil {
		return nil, &ExpressionError{x.source, err.Error()}
	}
	return value, nil
}

// truth evaluates a condition, which must be true or false.
func (x *expression) truth(ctx context.Context, lookup func(name string) (any, bool)) (bool, error) {
	value, err := x.eval(ctx, lookup)
	if err != nil {
		return false, err
	}
	b, ok := value.(bool)
	if !ok {
		return false, &ExpressionError{x.source, fmt.Sprintf("must be true or false, not %s", kindOf(value))}
	}
	return b, nil
}

// activation resolves CEL's names by a function.
type activation func(name string) (any, bool)

// ResolveName implements cel.Activation.
func (a activation) ResolveName(name string) (any, bool) {
	value, ok := a(name)
	if !ok {
		return nil, false
	}
	return toCEL(value), true
}

// Parent implements cel.Activation.
func (activation) Parent() cel.Activation { return nil }

// toCEL turns JSON numbers into CEL's.
func toCEL(value any) any {
	switch v := value.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return int64(f)
		}
		return f
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, item := range v {
			out[key] = toCEL(item)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = toCEL(item)
		}
		return out
	}
	return value
}

// fromCEL turns a CEL value into JSON's types.
func fromCEL(value ref.Val) (any, error) {
	switch v := value.(type) {
	case types.Null:
		return nil, nil
	case types.Bool:
		return bool(v), nil
	case types.String:
		return string(v), nil
	case types.Int:
		return json.Number(strconv.FormatInt(int64(v), 10)), nil
	case types.Uint:
		return json.Number(strconv.FormatUint(uint64(v), 10)), nil
	case types.Double:
		f := float64(v)
		if math.IsInf(f, 0) || math.IsNaN(f) {
			return nil, fmt.Errorf("gives %v, which is no number", f)
		}
		return json.Number(strconv.FormatFloat(f, 'f', -1, 64)), nil
	case types.Timestamp:
		return v.UTC().Format("2006-01-02T15:04:05.000Z"), nil
	case types.Duration:
		return json.Number(strconv.FormatInt(v.Duration.Milliseconds(), 10)), nil
	case *types.Optional:
		if !v.HasValue() {
			return nil, nil
		}
		return fromCEL(v.GetValue())
	}
	return fromContainer(value)
}

func fromContainer(value ref.Val) (any, error) {
	if native, err := value.ConvertToNative(reflect.TypeFor[map[ref.Val]ref.Val]()); err == nil {
		out := map[string]any{}
		for key, item := range native.(map[ref.Val]ref.Val) {
			name, ok := key.(types.String)
			if !ok {
				return nil, fmt.Errorf("gives a map whose keys are not texts")
			}
			plain, err := fromCEL(item)
			if err != nil {
				return nil, err
			}
			out[string(name)] = plain
		}
		return out, nil
	}
	if native, err := value.ConvertToNative(reflect.TypeFor[[]ref.Val]()); err == nil {
		items := native.([]ref.Val)
		out := make([]any, len(items))
		for i, item := range items {
			plain, err := fromCEL(item)
			if err != nil {
				return nil, err
			}
			out[i] = plain
		}
		return out, nil
	}
	return nil, fmt.Errorf("gives a %s, which a variable cannot hold", value.Type().TypeName())
}

// kindOf names a JSON value's type in errors.
func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a text"
	case json.Number:
		return "a number"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	case time.Time:
		return "a time"
	}
	return fmt.Sprintf("a %T", value)
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// shorten cuts a text for a message.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
