package messaging

import (
	"errors"
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
	h := make(http.Header, 10+len(o.Headers))
	seen := make(http.Header, 10+len(o.Headers))
	h["Content-Type"], h["User-Agent"] = jsonType, userAgentHeader
	h[headerDelivery] = []string{o.ID}
	h[headerAttempt] = []string{strconv.Itoa(o.Attempt)}
	h[headerEvent] = []string{o.Label}
	if a.Signature, err = sign(h, o, a.Started); err != nil {
		return nil, nil, err
	}
	for name, values := range h {
		seen[name] = values
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
