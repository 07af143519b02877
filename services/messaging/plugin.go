package messaging

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/messaging/driver"
)

// PluginID is the plugin's id.
const PluginID = "com.objectstack.service.messaging"

// The permissions of the outbox. Reading attempts needs read on
// sys_http_attempt; what was sent and answered shows only with
// PermissionReadPayload.
const (
	PermissionCancel      = "deliveries.cancel"
	PermissionReadPayload = "deliveries.read_payload"
)

// Plugin puts a [Service] into a host. The outbox's tables are migrated before
// the host starts.
//
// Sending begins when all plugins have started (kernel:ready) and ends before
// the first is stopped (kernel:shutdown).
type Plugin struct {
	service *Service
	auth    identity.Authorizer
}

var (
	_ core.Plugin        = (*Plugin)(nil)
	_ core.Stopper       = (*Plugin)(nil)
	_ core.HealthChecker = (*Plugin)(nil)
)

// NewPlugin returns the plugin of service. Who may read attempts is asked of
// auth.
func NewPlugin(service *Service, auth identity.Authorizer) *Plugin {
	return &Plugin{service: service, auth: auth}
}

// Manifest implements core.Plugin.
func (p *Plugin) Manifest() core.Manifest {
	return core.Manifest{
		ID: PluginID, Version: "1.0.0", Provides: []string{ServiceKey.Name()},
		Contributes: core.Contributions{
			Objects:    Objects(),
			Navigation: []core.NavigationItem{{ID: "http-deliveries", Label: "HTTP Deliveries", ObjectName: DeliveryObject, Icon: "send"}},
			Permissions: []core.Permission{
				{Name: PermissionCancel, Description: "Cancel waiting HTTP deliveries"},
				{Name: PermissionReadPayload, Description: "Read the bodies of HTTP deliveries and of their answers"},
			},
			Routes: append(p.bulkRoutes(), []core.Route{
				{
					Method: http.MethodPost, Pattern: "/api/v1/deliveries/{id}/cancel", Permission: PermissionCancel,
					Summary: "Cancel a waiting delivery", Handler: http.HandlerFunc(p.cancel),
				},
				{
					Method: http.MethodGet, Pattern: "/api/v1/deliveries/{id}/attempts",
					Summary: "List the attempts of a delivery", Handler: http.HandlerFunc(p.attempts),
				},
			}...),
		},
	}
}

// Init registers the service.
func (p *Plugin) Init(_ context.Context, host core.Context) error {
	host.On(core.HookReady, func(ctx context.Context, _ any) error { return p.service.Start(ctx) })
	host.On(core.HookShutdown, func(ctx context.Context, _ any) error { return p.service.Stop(ctx) })
	return core.Provide(host, ServiceKey, p.service)
}

// Stop implements core.Stopper.
func (p *Plugin) Stop(ctx context.Context) error { return p.service.Stop(ctx) }

// CheckHealth implements core.HealthChecker.
func (p *Plugin) CheckHealth(ctx context.Context) error { return p.service.CheckHealth(ctx) }

func (p *Plugin) cancel(w http.ResponseWriter, r *http.Request) {
	who := identity.From(r.Context())
	d, err := p.service.Cancel(r.Context(), r.PathValue("id"), "cancelled by an operator", scopeOf(who))
	if err != nil {
		p.fail(w, r, err)
		return
	}
	answer(w, http.StatusOK, envelope{Success: true, Data: map[string]any{"id": d.ID, "status": d.Status}})
}

func (p *Plugin) attempts(w http.ResponseWriter, r *http.Request) {
	if err := p.auth.Can(r.Context(), identity.OperationList, AttemptObject); err != nil {
		p.fail(w, r, err)
		return
	}
	scope := scopeOf(identity.From(r.Context()))
	if _, err := p.service.find(r.Context(), r.PathValue("id"), scope.Scoped, scope.OrganizationID); err != nil {
		p.fail(w, r, err)
		return
	}
	found, err := p.service.Attempts(r.Context(), r.PathValue("id"))
	if err != nil {
		p.fail(w, r, err)
		return
	}
	bodies := p.auth.Has(r.Context(), PermissionReadPayload) == nil
	list := make([]map[string]any, len(found))
	for i := range found {
		list[i] = AttemptJSON(&found[i])
		if !bodies {
			delete(list[i], "responseBody")
			delete(list[i], "responseHeaders")
		}
	}
	answer(w, http.StatusOK, envelope{Success: true, Data: map[string]any{"attempts": list}})
}

// envelope is a success of the API.
type envelope struct {
	Success bool `json:"success"`
	Data    any  `json:"data"`
}

// AttemptJSON is an attempt as the API shows it: durations in milliseconds,
// times as ISO 8601.
func AttemptJSON(a *driver.Attempt) map[string]any {
	return map[string]any{
		"deliveryId": a.DeliveryID, "round": a.Round, "attempt": a.Attempt, "node": nullable(a.Node),
		"startedAt": event.FormatTime(time.UnixMilli(a.StartedAt)), "durationMs": millis(a.Duration),
		"timings":    map[string]any{"dnsMs": millis(a.DNS), "connectMs": millis(a.Connect), "tlsMs": millis(a.TLS), "firstByteMs": millis(a.FirstByte)},
		"remoteAddr": nullable(a.RemoteAddr), "requestHeaders": rawJSON(a.RequestHeaders),
		"responseCode": nullable(a.ResponseCode), "responseHeaders": rawJSON(a.ResponseHeaders),
		"responseBody": nullable(a.ResponseBody), "responseTruncated": a.Truncated,
		"locationHost": nullable(a.LocationHost), "errorClass": nullable(a.ErrorClass), "error": nullable(a.Error),
	}
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func rawJSON(text string) any {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

// scopeOf restricts a caller to the rows of its organization.
func scopeOf(who identity.Principal) RedeliverOptions {
	return RedeliverOptions{Scoped: !who.Everywhere, OrganizationID: who.OrganizationID}
}

// fail writes the wrapped error envelope.
func (p *Plugin) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, code, message := http.StatusInternalServerError, "INTERNAL_ERROR", "Internal error"
	var ineligible *NotEligibleError
	var denied *identity.DeniedError
	switch {
	case errors.Is(err, ErrNotFound):
		status, code, message = http.StatusNotFound, "RESOURCE_NOT_FOUND", "Delivery not found"
	case errors.As(err, &ineligible):
		status, code, message = http.StatusConflict, "DELIVERY_NOT_ELIGIBLE", "Delivery is "+string(ineligible.Status)+": "+ineligible.Reason
	case errors.Is(err, identity.ErrUnauthenticated):
		status, code, message = http.StatusUnauthorized, "UNAUTHENTICATED", "Authentication is required"
	case errors.As(err, &denied):
		status, code, message = http.StatusForbidden, "PERMISSION_DENIED", "Permission denied"
	default:
		p.service.log.ErrorContext(r.Context(), "deliveries route", "path", r.URL.Path, "error", err)
	}
	refuse(w, status, code, message)
}

// refuse writes the wire protocol's wrapped error.
func refuse(w http.ResponseWriter, status int, code, message string) {
	type problem struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		Status  int    `json:"httpStatus"`
	}
	answer(w, status, struct {
		Success bool    `json:"success"`
		Error   problem `json:"error"`
	}{Error: problem{code, message, status}})
}

func answer(w http.ResponseWriter, status int, body any) {
	text, err := marshalPlain(body)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"success":false,"error":{"code":"INTERNAL_ERROR","message":"Internal error"}}`)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client is gone when this fails
}
