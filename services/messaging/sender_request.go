package messaging

import (
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"
)

var (
	jsonType        = []string{"application/json"}
	userAgentHeader = []string{userAgent}
	masked          = []string{mask}
)

// request builds the request and its masked record. The author's headers may
// replace Content-Type and User-Agent; everything else that is ours is set
// last. secrets are the values to look for in the answer.
func (s *Sender) request(o *Outgoing, a *Attempt) (req *http.Request, secrets []string, err error) {
	target, err := s.destinations.parse(o.URL)
	if err != nil {
		return nil, nil, err
	}
	method := http.MethodPost
	if o.Method != "" {
		var ok bool
		if method, ok = methodName(o.Method); !ok {
			return nil, nil, ValidateMethod(o.Method)
		}
	}
	if len(o.Headers) > 0 {
		if err := ValidateHeaders(o.Headers); err != nil {
			return nil, nil, err
		}
	}
	if err := validateHeader("X-Id", o.ID); err != nil {
		return nil, nil, errors.New("delivery id is not a header value")
	}
	if err := validateHeader("X-Label", o.Label); err != nil {
		return nil, nil, errors.New("label is not a header value")
	}
	authName, authValue, err := o.Auth.header()
	if err != nil {
		return nil, nil, err
	}
	h := make(http.Header, 6+len(o.Headers)) // more than 8 cost a table
	h["Content-Type"], h["User-Agent"] = jsonType, userAgentHeader
	ours := []string{o.ID, strconv.Itoa(o.Attempt), o.Label}
	h[headerDelivery], h[headerAttempt], h[headerEvent] = ours[0:1:1], ours[1:2:2], ours[2:3:3]
	if a.Signature, err = sign(h, o, a.Started); err != nil {
		return nil, nil, err
	}
	// The record is the request's own map where there is nothing to mask.
	seen := h
	if target.hasUser || len(o.Headers) > 0 || authName != "" {
		seen = maps.Clone(h)
	}
	secret := func(name, value string) {
		h[name], seen[name] = []string{value}, masked
		secrets = append(secrets, value)
		if _, token, ok := strings.Cut(value, " "); ok && name == "Authorization" {
			secrets = append(secrets, token)
		}
	}
	if target.hasUser {
		secret("Authorization", basicAuth(target.user, target.pass))
		secrets = append(secrets, target.pass)
	}
	for name, value := range o.Headers {
		name = http.CanonicalHeaderKey(name)
		if name == "Content-Type" || name == "User-Agent" {
			h[name], seen[name] = []string{value}, masked
			continue
		}
		secret(name, value)
	}
	if authName != "" {
		secret(authName, authValue)
		if o.Auth.Type == AuthBasic {
			secrets = append(secrets, o.Auth.Credentials["password"])
		}
	}
	a.RequestHeaders = seen
	return &http.Request{
		Method: method, URL: target.url, Host: target.url.Host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}, secrets, nil
}
