package webhooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/objecthost/objecthost/services/messaging"
)

// rules is what a definition says about the deliveries themselves. The zero
// value of a field means the outbox's default.
type rules struct {
	timeoutMS      int64
	retry          *messaging.RetryPolicy
	ordering       string
	blockOnRetry   bool
	maxConcurrency int
	rate           rateLimit
	payloadFields  []string
	authType       string
	signature      messaging.SignatureScheme
	expireAfterMS  int64
}

// rateLimit is a token bucket, off when perSecond is 0.
type rateLimit struct {
	perSecond float64
	burst     int
}

// Bounds and choices of the definition's options.
const (
	minTimeoutMS, maxTimeoutMS         = 1000, 300000
	maxRetriesBound                    = 10
	minInitialDelayMS, minMaxDelayMS   = 100, 1000
	maxDelayBoundMS                    = 31 * 24 * 3600 * 1000
	maxConcurrencyBound                = 64
	maxRatePerSecond, maxRateBurst     = 10000, 10000
	minExpireAfterMS, maxExpireAfterMS = 1000, 30 * 24 * 3600 * 1000
	maxPayloadFields                   = 500
)

// The orderings of a webhook's deliveries.
const (
	orderingRecord  = "record"
	orderingWebhook = "webhook"
	orderingNone    = "none"
)

var fieldNamePattern = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// definition is a parsed definition_json.
type definition struct {
	// members are the keys as written, without the three secrets.
	members members
	// columns holds what the definition says about columns of the row, by
	// column; letter case and lists are normalised.
	columns map[string]any
	rules   rules
	// What the definition says about the three secrets.
	secret, headers, credentials secretInput
	// moved tells that members differs from the text because a secret stood
	// there.
	moved bool
}

// columnKeys maps keys of a definition to the columns that they stand for.
var columnKeys = []struct{ key, column string }{
	{"name", fieldName}, {"label", fieldLabel}, {"object", fieldObjectName}, {"triggers", fieldTriggers},
	{"url", fieldURL}, {"method", fieldMethod}, {"isActive", fieldActive}, {"description", fieldDescription},
}

// definitionKeys reads the keys that a definition may hold. A null is read
// only for the secrets; for all others it means that the key was left out.
var definitionKeys map[string]func(*definition, json.RawMessage) *problem

func init() { // the readers refer to the map through d.options
	definitionKeys = map[string]func(*definition, json.RawMessage) *problem{
		"name": readColumnText(fieldName, "name"), "label": readColumnText(fieldLabel, "label"),
		"object": readColumnText(fieldObjectName, "object"), "url": readColumnText(fieldURL, "url"),
		"description": readColumnText(fieldDescription, "description"),
		"triggers":    readTriggers, "method": readMethod, "isActive": readIsActive,
		"secret": readSecret, "authentication": readAuthentication,
		"tags": readTags, "protection": readProtection,
		"timeoutMs": func(d *definition, v json.RawMessage) *problem {
			return readInteger(&d.rules.timeoutMS, "timeoutMs", v, minTimeoutMS, maxTimeoutMS)
		},
		"expireAfterMs": func(d *definition, v json.RawMessage) *problem {
			return readInteger(&d.rules.expireAfterMS, "expireAfterMs", v, minExpireAfterMS, maxExpireAfterMS)
		},
		"maxConcurrency": func(d *definition, v json.RawMessage) *problem {
			n := int64(0)
			p := readInteger(&n, "maxConcurrency", v, 1, maxConcurrencyBound)
			d.rules.maxConcurrency = int(n)
			return p
		},
		"blockOnRetry": func(d *definition, v json.RawMessage) *problem {
			return readBool(&d.rules.blockOnRetry, "blockOnRetry", v)
		},
		"ordering": func(d *definition, v json.RawMessage) *problem {
			return readChoice(&d.rules.ordering, "ordering", v, orderingRecord, orderingWebhook, orderingNone)
		},
		"signature": func(d *definition, v json.RawMessage) *problem {
			scheme := ""
			p := readChoice(&scheme, "signature", v, string(messaging.SignatureObjectstack),
				string(messaging.SignatureStandard), string(messaging.SignatureBoth))
			d.rules.signature = messaging.SignatureScheme(scheme)
			return p
		},
		"payloadFields": readPayloadFields, "rateLimit": readRateLimit, "retryPolicy": readRetryPolicy,
	}
}

// keyHints tells what to write instead of a key that is refused.
var keyHints = map[string]string{
	"body":           "the body is always the event; payloadFields chooses its record fields",
	"includeSession": "sessions never leave the host; userId tells who made the change",
	"object_name":    `use "object"`, "objectName": `use "object"`,
	"active": `use "isActive"`, "enabled": `use "isActive"`, "is_active": `use "isActive"`,
	"events": `use "triggers"`, "on": `use "triggers"`, "trigger": `use "triggers"`,
	"endpoint": `use "url"`, "target": `use "url"`,
	"signingSecret": `use "secret"`, "signing_secret": `use "secret"`,
	"timeout": `use "timeoutMs"`, "timeout_ms": `use "timeoutMs"`,
	"retry": `use "retryPolicy"`, "retries": `use "retryPolicy"`, "retry_policy": `use "retryPolicy"`,
	"auth": `use "authentication"`, "paused": `write the column "paused"`,
}

// protectionKey reports whether key belongs to the envelope in which packages
// ship metadata. It is kept and has no effect on deliveries.
func protectionKey(key string) bool {
	return strings.HasPrefix(key, "_lock") || key == "_provenance" || key == "_packageId" || key == "_packageVersion"
}

// parseDefinition reads an authored Webhook. All that is wrong is reported at
// once; the definition is usable only when nothing is. A broken header map is
// a *HeaderError in its own result, because it is reported before all else.
func parseDefinition(source []byte) (*definition, []*problem, error) {
	all, err := parseMembers(source)
	if err != nil {
		return nil, []*problem{definitionProblem(codeInvalidJSON, "Definition %s", err)}, nil
	}
	d := &definition{columns: map[string]any{}, members: members{}}
	var (
		problems []*problem
		headers  error
	)
	for _, one := range all {
		switch read, known := definitionKeys[one.key]; {
		case one.key == "headers":
			d.headers, headers = parseHeaders(one.value)
			d.moved = true
			continue
		case one.key == "secret":
			d.moved = true
			if p := read(d, one.value); p != nil {
				problems = append(problems, p)
			}
			continue
		case !known && !protectionKey(one.key):
			problems = append(problems, unknownKey("", one.key, keyHints[one.key]))
		case known && !isNull(one.value):
			if p := read(d, one.value); p != nil {
				problems = append(problems, p)
			}
		}
		if one.key == "authentication" {
			one.value = d.withoutCredentials(one.value)
		}
		d.members = append(d.members, one)
	}
	return d, problems, headers
}

// withoutCredentials is an authentication's JSON without the secret part.
func (d *definition) withoutCredentials(value json.RawMessage) json.RawMessage {
	auth, err := parseMembers(value)
	if err != nil || !auth.has("credentials") {
		return value
	}
	d.moved = true
	return auth.set("credentials", nil).appendJSON(nil)
}

func unknownKey(parent, key, hint string) *problem {
	message := fmt.Sprintf("Definition: %q is not a key of %s", key, parent)
	if parent == "" {
		message = fmt.Sprintf("Definition: %q is not a key of a webhook", key)
	}
	if hint != "" {
		message += ": " + hint
	}
	return definitionProblem(codeUnknownField, "%s", message)
}

func readColumnText(column, key string) func(*definition, json.RawMessage) *problem {
	return func(d *definition, v json.RawMessage) *problem {
		s, ok := text(v)
		if !ok {
			return definitionProblem(codeInvalidType, "Definition: %s must be a text", key)
		}
		d.columns[column] = s
		return nil
	}
}

func readTriggers(d *definition, v json.RawMessage) *problem {
	var list any
	if err := decodeStrict(v, &list); err != nil {
		return definitionProblem(codeInvalidType, "Definition: triggers %s", err)
	}
	d.columns[fieldTriggers] = parseTriggers(list)
	return nil
}

func readMethod(d *definition, v json.RawMessage) *problem {
	s, ok := text(v)
	if !ok {
		return definitionProblem(codeInvalidType, "Definition: method must be a text")
	}
	d.columns[fieldMethod] = strings.ToLower(s)
	return nil
}

func readIsActive(d *definition, v json.RawMessage) *problem {
	var active bool
	if p := readBool(&active, "isActive", v); p != nil {
		return p
	}
	d.columns[fieldActive] = active
	return nil
}

func readSecret(d *definition, v json.RawMessage) *problem {
	if isNull(v) {
		d.secret = secretInput{state: secretClear}
		return nil
	}
	s, ok := text(v)
	if !ok {
		return definitionProblem(codeInvalidType, "Definition: secret must be a text")
	}
	d.secret = secretText(s)
	return nil
}

func readAuthentication(d *definition, v json.RawMessage) *problem {
	auth, err := parseMembers(v)
	if err != nil {
		return definitionProblem(codeInvalidType, "Definition: authentication %s", err)
	}
	for _, one := range auth {
		if one.key != "type" && one.key != "credentials" {
			return unknownKey("authentication", one.key, "")
		}
	}
	kind := auth.get("type")
	if kind == nil {
		return definitionProblem(codeRequired, "Definition: authentication.type is required")
	}
	if p := readChoice(&d.rules.authType, "authentication.type", kind,
		messaging.AuthNone, messaging.AuthBearer, messaging.AuthBasic, messaging.AuthAPIKey); p != nil {
		return p
	}
	if !auth.has("credentials") {
		return nil
	}
	d.credentials = rawSecret(auth.get("credentials"))
	return nil
}

func readTags(_ *definition, v json.RawMessage) *problem {
	var tags []string
	if json.Unmarshal(v, &tags) != nil {
		return definitionProblem(codeInvalidType, "Definition: tags must be a list of texts")
	}
	return nil
}

func readProtection(_ *definition, v json.RawMessage) *problem {
	if _, err := parseMembers(v); err != nil {
		return definitionProblem(codeInvalidType, "Definition: protection %s", err)
	}
	return nil
}

func readPayloadFields(d *definition, v json.RawMessage) *problem {
	var fields []string
	if json.Unmarshal(v, &fields) != nil {
		return definitionProblem(codeInvalidType, "Definition: payloadFields must be a list of field names")
	}
	if len(fields) > maxPayloadFields {
		return definitionProblem(codeMaxItems, "Definition: payloadFields holds more than %d names", maxPayloadFields)
	}
	for _, name := range fields {
		if !fieldNamePattern.MatchString(name) {
			return definitionProblem(codeInvalidValue, "Definition: payloadFields: %q is not a field name", name)
		}
	}
	d.rules.payloadFields = fields
	return nil
}

func readRateLimit(d *definition, v json.RawMessage) *problem {
	limit, err := parseMembers(v)
	if err != nil {
		return definitionProblem(codeInvalidType, "Definition: rateLimit %s", err)
	}
	for _, one := range limit {
		if one.key != "perSecond" && one.key != "burst" {
			return unknownKey("rateLimit", one.key, "")
		}
	}
	rate := limit.get("perSecond")
	if rate == nil {
		return definitionProblem(codeRequired, "Definition: rateLimit.perSecond is required")
	}
	var perSecond float64
	if json.Unmarshal(rate, &perSecond) != nil || perSecond < 0.001 || perSecond > maxRatePerSecond {
		return definitionProblem(codeInvalidValue,
			"Definition: rateLimit.perSecond must be a number from 0.001 to %d", maxRatePerSecond)
	}
	burst := int64(max(1, perSecond))
	if given := limit.get("burst"); given != nil {
		if p := readInteger(&burst, "rateLimit.burst", given, 1, maxRateBurst); p != nil {
			return p
		}
	}
	d.rules.rate = rateLimit{perSecond: perSecond, burst: int(burst)}
	return nil
}

func readRetryPolicy(d *definition, v json.RawMessage) *problem {
	policy, err := parseMembers(v)
	if err != nil {
		return definitionProblem(codeInvalidType, "Definition: retryPolicy %s", err)
	}
	// What is left out has the defaults of a policy, not those of the schedule.
	out := messaging.RetryPolicy{
		MaxRetries: 3, InitialDelayMs: 1000, MaxDelayMs: 60000, Strategy: messaging.BackoffExponential,
	}
	for _, one := range policy {
		if isNull(one.value) {
			continue
		}
		var p *problem
		switch one.key {
		case "maxRetries":
			n := int64(0)
			p = readInteger(&n, "retryPolicy.maxRetries", one.value, 0, maxRetriesBound)
			out.MaxRetries = int(n)
		case "initialDelayMs":
			p = readInteger(&out.InitialDelayMs, "retryPolicy.initialDelayMs", one.value, minInitialDelayMS, maxDelayBoundMS)
		case "maxDelayMs":
			p = readInteger(&out.MaxDelayMs, "retryPolicy.maxDelayMs", one.value, minMaxDelayMS, maxDelayBoundMS)
		case "backoffStrategy":
			p = readChoice(&out.Strategy, "retryPolicy.backoffStrategy", one.value,
				messaging.BackoffFixed, messaging.BackoffLinear, messaging.BackoffExponential)
		default:
			p = unknownKey("retryPolicy", one.key, "")
		}
		if p != nil {
			return p
		}
	}
	d.rules.retry = &out
	return nil
}

func readInteger(into *int64, key string, v json.RawMessage, low, high int64) *problem {
	n, err := integer(v)
	var code string
	switch {
	case errors.Is(err, errNotNumber):
		code = codeInvalidType
	case errors.Is(err, errNotInteger):
		code = codeInvalidNumber
	case errors.Is(err, errTooLarge) && n > 0, err == nil && n > high:
		code = codeMaxValue
	case err != nil, n < low:
		code = codeMinValue
	default:
		*into = n
		return nil
	}
	p := definitionProblem(code, "Definition: %s must be an integer from %d to %d", key, low, high)
	p.constraint = map[string]any{"min": low, "max": high}
	return p
}

func readBool(into *bool, key string, v json.RawMessage) *problem {
	switch string(v) {
	case "true", "false":
		*into = string(v) == "true"
		return nil
	}
	return definitionProblem(codeInvalidBoolean, "Definition: %s must be true or false", key)
}

func readChoice(into *string, key string, v json.RawMessage, choices ...string) *problem {
	s, ok := text(v)
	if !ok || !slices.Contains(choices, s) {
		return definitionProblem(codeInvalidOption, "Definition: %s must be one of: %s", key, strings.Join(choices, ", "))
	}
	*into = s
	return nil
}
