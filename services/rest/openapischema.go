package rest

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/objecthost/objecthost/core/object"
)

func ref(kind, name string) part { return part{"$ref": "#/components/" + kind + "/" + name} }

// The names of an object's schemas: what is answered, and what is taken. Names of
// objects cannot hold a dot, so that they meet no other schema.
func recordSchema(name string) string { return "record." + name }
func inputSchema(name string) string  { return "input." + name }

// listParameters are those of lists and of single records.
var listParameters = part{
	"filter": query("filter", "A filter: `[\"amount\", \">\", 10]`, or a map of conditions, as JSON.", part{"type": "string"}),
	"select": query("select", "The fields to return, with commas.", part{"type": "string"}),
	"sort":   query("sort", "Sort keys, with commas; `-` in front of a field turns the order.", part{"type": "string"}),
	"top":    query("top", "How many records at most.", part{"type": "integer", "minimum": 0}),
	"skip":   query("skip", "How many records to pass over.", part{"type": "integer", "minimum": 0}),
	"cursor": query("cursor", "Empty or `*` for the first page; then the `nextCursor` of the page before.", part{"type": "string"}),
	"count":  query("count", "Leaves the total out when false.", part{"type": "boolean"}),
	"expand": query("expand", "References to replace by the records, with commas.", part{"type": "string"}),
	"search": query("search", "Words that records have to hold.", part{"type": "string"}),
	"format": query("format", "The format of an export.", part{"type": "string", "enum": []string{"csv", "json", "jsonl"}}),
	"ifMatch": part{
		"name": "If-Match", "in": "header", "required": false, "schema": part{"type": "string"},
		"description": "The `updated_at` that the record must have.",
	},
}

func query(name, description string, schema part) part {
	return part{"name": name, "in": "query", "required": false, "description": description, "schema": schema}
}

// errorResponses are the refusals of the two families.
var errorResponses = part{
	"Refused":        jsonResponse("A refusal: `code` tells why.", ref("schemas", "Error")),
	"WrappedRefused": jsonResponse("A refusal: `error.code` tells why.", ref("schemas", "WrappedError")),
}

func jsonResponse(description string, schema part) part {
	return part{"description": description, "content": part{"application/json": part{"schema": schema}}}
}

// commonSchemas are those that are no object's.
func commonSchemas() part {
	text := part{"type": "string"}
	return part{
		"Error": part{
			"type": "object", "required": []string{"error", "code"},
			"properties": part{
				"error": text, "code": text, "message": text, "object": text, "field": text,
				"fields": part{"type": "array", "items": part{
					"type": "object", "required": []string{"field", "code", "message"},
					"properties": part{"field": text, "code": text, "message": text, "label": text},
				}},
			},
		},
		"WrappedError": part{
			"type": "object", "required": []string{"success", "error"},
			"properties": part{
				"success": part{"type": "boolean", "enum": []bool{false}},
				"error": part{"type": "object", "required": []string{"code", "message"}, "properties": part{
					"code": text, "message": text, "details": part{"type": "object"},
				}},
			},
		},
		"Wrapped": part{
			"type": "object", "required": []string{"success"},
			"properties": part{"success": part{"type": "boolean"}, "data": part{"nullable": true}},
		},
		"Query": part{
			"type": "object", "additionalProperties": false,
			"properties": part{
				"object": text, "where": part{}, "fields": part{"type": "array", "items": text}, "limit": part{"type": "integer", "minimum": 0},
				"orderBy": part{"type": "array", "items": part{"type": "object", "required": []string{"field"}, "properties": part{
					"field": text, "order": part{"type": "string", "enum": []string{"asc", "desc"}},
				}}},
				"offset": part{"type": "integer", "minimum": 0}, "cursor": text, "expand": part{"type": "object"}, "search": text,
				"searchFields": part{"type": "array", "items": text}, "groupBy": part{"type": "array", "items": text},
				"aggregations": part{"type": "array", "items": part{"type": "object", "required": []string{"function", "alias"}, "properties": part{
					"function": part{"type": "string", "enum": []string{"count", "sum", "avg", "min", "max", "count_distinct"}}, "field": text, "alias": text,
				}}},
				"having": part{}, "count": part{"type": "boolean"}, "trash": part{"type": "boolean"},
			},
		},
	}
}

// schemasOf describes an object's records and what writes of them take. In
// an answer every value may be null, and a selection may leave fields out.
func schemasOf(o *wireObject) (record, input part) {
	answered, taken := part{}, part{}
	for i := range o.Fields {
		f := &o.Fields[i].Field
		answered[f.Name] = fieldSchema(f, true)
		if !f.Readonly && f.Type != object.Autonumber {
			taken[f.Name] = fieldSchema(f, false)
		}
	}
	return part{"type": "object", "properties": answered}, part{"type": "object", "properties": taken}
}

// fieldSchema describes the values of a field. Bounds are told of what is
// taken only: records may be older than they.
func fieldSchema(f *object.Field, answered bool) part {
	s := valueSchema(f, answered)
	if f.IsMulti() {
		s = part{"type": "array", "items": s}
	}
	s["nullable"] = true
	if f.Label != "" {
		s["title"] = f.Label
	}
	if f.Description != "" {
		s["description"] = f.Description
	}
	if f.Readonly {
		s["readOnly"] = true
	}
	return s
}

func valueSchema(f *object.Field, answered bool) part {
	switch {
	case f.Type.IsJSON(), answered && f.IsReference():
		return part{} // an expanded reference is a record
	case f.Type.IsBoolean():
		return part{"type": "boolean"}
	case f.Type.IsNumber(), f.Type == object.Autonumber && f.Format == "":
		s := part{"type": "number"}
		if !answered {
			bound(s, "minimum", f.Min)
			bound(s, "maximum", f.Max)
		}
		return s
	case f.Type == object.Datetime && f.Format == object.FormatEpochMillis:
		return part{"type": "integer", "format": "int64"}
	case f.Type == object.Datetime:
		return part{"type": "string", "format": "date-time"}
	case f.Type == object.Date:
		return part{"type": "string", "format": "date"}
	}
	s := part{"type": "string"}
	if !answered && f.Type.HasOptions() && len(f.Options) > 0 && !f.IsMulti() {
		values := []any{nil}
		for _, o := range f.Options {
			values = append(values, o.Value)
		}
		s["enum"] = values
	}
	if !answered && f.MaxLength != nil {
		s["maxLength"] = *f.MaxLength
	}
	if !answered && f.MinLength != nil {
		s["minLength"] = *f.MinLength
	}
	return s
}

func bound(s part, key string, n json.Number) {
	if n != "" {
		s[key] = n
	}
}

// responsesOf describes the answers of a route.
func responsesOf(route OwnedRoute, o *object.Schema) part {
	refusal := ref("responses", "WrappedRefused")
	if route.family == flat {
		refusal = ref("responses", "Refused")
	}
	status, answer := "200", jsonResponse("The answer.", part{"type": "object"})
	switch {
	case o != nil:
		status, answer = dataResponse(route, o)
	case route.Plugin == PluginID && route.family == wrapped && !route.unasked:
		answer = jsonResponse("The answer.", ref("schemas", "Wrapped"))
	case route.Plugin != PluginID:
		answer = part{"description": "The answer."}
	}
	if route.Pattern == openAPIPath {
		answer = jsonResponse("An OpenAPI document.", part{"type": "object"})
	}
	return part{status: answer, "default": refusal}
}

func dataResponse(route OwnedRoute, o *object.Schema) (status string, answer part) {
	record, text := ref("schemas", recordSchema(o.Name)), part{"type": "string"}
	one := part{"type": "object", "required": []string{"object", "id", "record"}, "properties": part{
		"object": text, "id": text, "sourceId": text, "record": record, "droppedFields": part{"type": "array", "items": part{"type": "object"}},
	}}
	list := part{"type": "object", "required": []string{"object", "records", "hasMore"}, "properties": part{
		"object": text, "records": part{"type": "array", "items": record}, "total": part{"type": "integer"},
		"totalCapped": part{"type": "boolean"}, "hasMore": part{"type": "boolean"}, "nextCursor": text,
	}}
	switch rest := strings.TrimPrefix(route.Pattern, objectPath); {
	case route.Method == http.MethodGet && rest == "", rest == "/query":
		return "200", jsonResponse("The records.", list)
	case route.Method == http.MethodPost && rest == "", rest == "/{id}/clone":
		return "201", jsonResponse("The new record.", one)
	case route.Method == http.MethodDelete:
		return "200", jsonResponse("It is deleted.", part{"type": "object", "required": []string{"object", "id", "success"}, "properties": part{
			"object": text, "id": text, "success": part{"type": "boolean"},
		}})
	case rest == "/{id}", rest == "/{id}/undelete":
		return "200", jsonResponse("The record.", one)
	case rest == "/createMany":
		return "201", jsonResponse("The new records.", part{"type": "object", "required": []string{"object", "records", "count"}, "properties": part{
			"object": text, "records": part{"type": "array", "items": record}, "count": part{"type": "integer"},
		}})
	case rest == "/import/jobs":
		return "201", jsonResponse("The job.", part{"type": "object"})
	case rest == "/export":
		return "200", part{"description": "The file.", "content": part{
			"text/csv": part{"schema": text}, "application/json": part{"schema": part{"type": "array", "items": record}}, "application/x-ndjson": part{"schema": text},
		}}
	default:
		return "200", jsonResponse("What became of each record.", part{"type": "object"})
	}
}
