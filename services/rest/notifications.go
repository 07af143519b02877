package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
)

const notificationBase = apiBase + "/notifications"

// NotificationObject is the object whose records are notifications: a plugin, a
// flow or a caller who may create its records tells a user something by
// creating one. Users read theirs through /api/v1/notifications only, so that the
// permission to read records shows nobody the notifications of others.
const NotificationObject = "sys_notification"

func notificationSchema() object.Schema {
	number := func(n int) *int { return &n }
	return object.Schema{
		Name: NotificationObject, Label: "Notification", PluralLabel: "Notifications", Icon: "bell", IsSystem: true, ManagedBy: "system-data",
		NameField: "title", Enable: object.Enable{APIMethods: []string{object.MethodCreate}},
		Fields: object.Fields{
			{Name: "recipient_id", Label: "Recipient", Type: object.Lookup, Reference: "sys_user", Required: true, DeleteBehavior: object.Cascade, Description: "The user who is told."},
			{Name: "type", Label: "Type", Type: object.Text, MaxLength: number(100), DefaultValue: json.RawMessage(`"info"`)},
			{Name: "title", Label: "Title", Type: object.Text, MaxLength: number(200), Required: true},
			{Name: "body", Label: "Body", Type: object.Textarea},
			{Name: "data", Label: "Data", Type: object.JSON},
			{Name: "action_url", Label: "Link", Type: object.Text, MaxLength: number(2000)},
			{Name: "read_at", Label: "Read at", Type: object.Datetime, Readonly: true},
		},
		Indexes: []object.Index{{Name: "inbox", Fields: []string{"recipient_id", "created_at"}}},
	}
}

// notification is one as clients read it.
type notification struct {
	ID        string `json:"id"`
	Type      string `json:"type"`
	Title     string `json:"title"`
	Body      string `json:"body"`
	Read      bool   `json:"read"`
	Data      any    `json:"data,omitempty"`
	ActionURL string `json:"actionUrl,omitempty"`
	CreatedAt string `json:"createdAt"`
}

type inbox struct {
	Notifications []notification `json:"notifications"`
	// UnreadCount is all unread ones, whatever the list shows.
	UnreadCount int    `json:"unreadCount"`
	Cursor      string `json:"cursor,omitempty"`
}

func (s *Server) notificationRoutes() []OwnedRoute {
	return []OwnedRoute{
		own(http.MethodGet, notificationBase, "List one's notifications, the newest first", s.serveNotifications),
		own(http.MethodPost, notificationBase+"/read", "Mark notifications as read", s.serveRead),
		own(http.MethodPost, notificationBase+"/read/all", "Mark all notifications as read", s.serveReadAll),
	}
}

// maxInbox is the largest page of notifications.
const maxInbox = 200

// mine selects the caller's notifications in the organization that the call acts
// in; those of keys without a user are none.
func mine(ctx context.Context, and ...data.Filter) data.Filter {
	who := identity.From(ctx)
	organization := data.Eq("organization_id", nil)
	if who.OrganizationID != "" {
		organization = data.Eq("organization_id", who.OrganizationID)
	}
	return data.And(append([]data.Filter{data.Eq("recipient_id", who.UserID), organization}, and...)...)
}

// asHost reads and writes for the caller what the caller has no permission to
// read of others.
func asHost(ctx context.Context) context.Context { return identity.With(ctx, identity.System()) }

func (s *Server) serveNotifications(w http.ResponseWriter, r *http.Request) error {
	params, err := queryParams(r)
	if err != nil {
		return err
	}
	query, err := inboxQuery(r.Context(), params)
	if err != nil {
		return err
	}
	page, err := s.data.Find(asHost(r.Context()), NotificationObject, query)
	if err != nil {
		return err
	}
	one := 1
	unread, err := s.data.Find(asHost(r.Context()), NotificationObject, data.Query{Where: mine(r.Context(), data.Eq("read_at", nil)), Limit: &one})
	if err != nil {
		return err
	}
	answer := inbox{Notifications: []notification{}, UnreadCount: data.MaxTotal, Cursor: page.NextCursor}
	if unread.Total != nil {
		answer.UnreadCount = *unread.Total
	}
	for _, record := range page.Records {
		answer.Notifications = append(answer.Notifications, notificationOf(record))
	}
	return writeJSON(w, http.StatusOK, envelope{Success: true, Data: answer})
}

func inboxQuery(ctx context.Context, params url.Values) (data.Query, error) {
	limit := 50
	query := data.Query{OrderBy: []data.Sort{{Field: "created_at", Desc: true}}, Cursor: "*", Limit: &limit, NoCount: true}
	if err := onlyParams(params, "read", "type", "limit", "cursor"); err != nil {
		return query, err
	}
	var more []data.Filter
	if text := params.Get("read"); text != "" {
		read, err := strconv.ParseBool(text)
		if err != nil {
			return query, invalidRequest("'read' must be true or false.")
		}
		more = append(more, data.Where("read_at", "$null", !read))
	}
	if kind := params.Get("type"); kind != "" {
		more = append(more, data.Eq("type", kind))
	}
	if text := params.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxInbox {
			return query, invalidRequest(fmt.Sprintf("'limit' must be 1 to %d.", maxInbox))
		}
	}
	if cursor := params.Get("cursor"); cursor != "" {
		query.Cursor = cursor
	}
	query.Where = mine(ctx, more...)
	return query, nil
}

func notificationOf(record data.Record) notification {
	text := func(name string) string { s, _ := record[name].(string); return s }
	return notification{
		ID: text("id"), Type: text("type"), Title: text("title"), Body: text("body"), Read: record["read_at"] != nil,
		Data: record["data"], ActionURL: text("action_url"), CreatedAt: text("created_at"),
	}
}

// readAnswer tells how many were unread before.
type readAnswer struct {
	Success   bool  `json:"success"`
	ReadCount int64 `json:"readCount"`
}

// serveRead reads {"ids": []}. Ids of other users' notifications change nothing.
func (s *Server) serveRead(w http.ResponseWriter, r *http.Request) error {
	body, err := readObject(r)
	if err != nil {
		return err
	}
	m := membersOf(body)
	m.only("ids")
	m.required("ids")
	ids := m.texts("ids")
	if len(ids) > data.MaxBatch {
		m.refuse("ids", fmt.Sprintf("must be at most %d", data.MaxBatch))
	}
	if *m.err != nil {
		return *m.err
	}
	return s.markRead(w, r, data.In("id", ids...))
}

func (s *Server) serveReadAll(w http.ResponseWriter, r *http.Request) error {
	return s.markRead(w, r, data.Filter{})
}

func (s *Server) markRead(w http.ResponseWriter, r *http.Request, which data.Filter) error {
	n, err := s.data.UpdateWhere(asHost(r.Context()), NotificationObject, mine(r.Context(), which, data.Eq("read_at", nil)),
		data.Record{"read_at": event.FormatTime(time.Now())})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, envelope{Success: true, Data: readAnswer{Success: true, ReadCount: n}})
}
