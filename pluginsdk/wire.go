package pluginsdk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/objecthost/objecthost/pluginsdk/proto/v1"
)

// MaxMessage bounds a message of the protocol, either way.
const MaxMessage = 16 << 20

// The handshake: the cookie that tells a plugin that a host started it, and
// the version of the protocol.
const (
	CookieKey       = "OBJECTHOST_PLUGIN"
	CookieValue     = "v1"
	ProtocolVersion = 1
)

// The metadata keys of calls to the host.
const (
	MetadataToken = "objecthost-token"
	MetadataCall  = "objecthost-call"
)

// ToWire is err as a message of the protocol, nil for nil.
func ToWire(err error) *pluginv1.Error {
	e := AsError(err)
	if e == nil {
		return nil
	}
	return &pluginv1.Error{Code: e.Code, Message: e.Message, Retryable: e.Retryable, Object: e.Object, Field: e.Field, Fields: e.Fields}
}

// FromWire is the error that a message holds, nil for nil.
func FromWire(e *pluginv1.Error) error {
	if e == nil {
		return nil
	}
	return &Error{Code: e.Code, Message: e.Message, Retryable: e.Retryable, Object: e.Object, Field: e.Field, Fields: e.Fields}
}

// ToStatus is err as a gRPC status that carries an [Error], nil for nil.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	code := codes.Unknown
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		code, err = codes.DeadlineExceeded, &Error{Code: CodeTimeout, Message: "the call ran out of time", Retryable: true}
	case errors.Is(err, context.Canceled):
		return status.FromContextError(err).Err()
	case IsCode(err, CodeDenied):
		code = codes.PermissionDenied
	case IsCode(err, CodeUnavailable):
		code = codes.Unavailable
	case IsCode(err, CodeInvalid):
		code = codes.InvalidArgument
	}
	wire := ToWire(err)
	s, attachErr := status.New(code, wire.Message).WithDetails(wire)
	if attachErr != nil { // only for messages that cannot be marshalled: invalid UTF-8
		return status.Error(code, fmt.Sprintf("%q", wire.Message))
	}
	return s.Err()
}

// FromStatus is the [Error] that a call over gRPC ended in, nil for nil. A lost
// connection becomes [CodeUnavailable], a deadline [CodeTimeout].
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	for _, detail := range s.Details() {
		if e, ok := detail.(*pluginv1.Error); ok {
			return FromWire(e)
		}
	}
	switch s.Code() {
	case codes.Unavailable:
		return &Error{Code: CodeUnavailable, Message: s.Message(), Retryable: true}
	case codes.DeadlineExceeded:
		return &Error{Code: CodeTimeout, Message: s.Message(), Retryable: true}
	case codes.Canceled:
		return context.Canceled
	case codes.Unimplemented, codes.InvalidArgument, codes.ResourceExhausted:
		return &Error{Code: CodeInvalid, Message: s.Message()}
	case codes.PermissionDenied, codes.Unauthenticated:
		return &Error{Code: CodeDenied, Message: s.Message()}
	}
	return &Error{Code: CodeInternal, Message: s.Message()}
}

// DecodeRecord reads a JSON object and keeps the digits of its numbers; nothing
// is nil.
func DecodeRecord(text []byte) (Record, error) {
	if len(text) == 0 {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var r Record
	if err := decoder.Decode(&r); err != nil {
		return nil, &Error{Code: CodeInvalid, Message: "record: " + err.Error()}
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, &Error{Code: CodeInvalid, Message: "record: more than one JSON value"}
	}
	return r, nil
}

// EncodeRecord is a record as JSON; nil is nothing.
func EncodeRecord(r Record) ([]byte, error) {
	if r == nil {
		return nil, nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, &Error{Code: CodeInvalid, Message: "record: " + err.Error()}
	}
	return text, nil
}

// EncodeHeader is a header in the protocol's form.
func EncodeHeader(h http.Header) []*pluginv1.Header {
	var out []*pluginv1.Header
	for name, values := range h {
		for _, v := range values {
			out = append(out, &pluginv1.Header{Name: name, Value: v})
		}
	}
	return out
}

// DecodeHeader is the reverse of [EncodeHeader].
func DecodeHeader(list []*pluginv1.Header) http.Header {
	h := http.Header{}
	for _, x := range list {
		h.Add(x.Name, x.Value)
	}
	return h
}
