package webhooks

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/messaging/messagingtest"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func TestCase_SEC_02_no_secret_is_readable(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		id := n.hook(t, data.Record{"url": r.URL, "definition_json": `{"secret":"s3cret-a","headers":{"authorization":"s3cret-b",` +
			`"X-API-KEY":"s3cret-c","Cookie":"s3cret-d","X-Acme-Token":"s3cret-e"},"timeoutMs":2000}`})
		check := func(what string, v any) {
			t.Helper()
			text, err := encode(v)
			fatal(t, err)
			if strings.Contains(string(text), "s3cret") {
				t.Errorf("%s holds a secret: %s", what, text)
			}
		}
		stored, err := n.engine.Get(system(t), ObjectName, id)
		fatal(t, err)
		check("read", map[string]any(stored))
		if stored["signing_secret"] != mask || stored["headers_secret"] != mask || stored["definition_json"] != `{"timeoutMs":2000}` {
			t.Errorf("webhook %v", stored)
		}
		// Saving what was read keeps everything.
		n.update(t, ObjectName, id, data.Record{"signing_secret": mask, "headers_secret": mask, "auth_secret": nil,
			"definition_json": stored["definition_json"], "label": "saved"})
		n.create(t, "account", data.Record{"name": "a"})
		n.settled(t, n.one(t).ID, messaging.StatusSuccess)
		req := r.Requests()[0]
		if req.Header.Get("X-Objectstack-Signature") != signature("s3cret-a", req.Body) || req.Header.Get("Cookie") != "s3cret-d" ||
			req.Header.Get("X-Acme-Token") != "s3cret-e" {
			t.Errorf("headers %v", req.Header)
		}
		for _, table := range []string{"sys_webhook", "sys_http_delivery", "sys_http_target", "sys_http_attempt", "sys_secret", "sys_event_log", "sys_webhook_change"} {
			if dump := n.dump(t, table); strings.Contains(dump, "s3cret") {
				t.Errorf("table %s holds a secret", table)
			}
		}
		if strings.Contains(n.log.String(), "s3cret") {
			t.Error("the log holds a secret")
		}
	})
}

// dump is a table as text, "" for one that does not exist under this name.
func (n *node) dump(t testing.TB, table string) string {
	t.Helper()
	var count int
	query := `SELECT count(*) FROM information_schema.tables WHERE table_name = '` + table + `' AND table_schema = current_schema()`
	if n.db.Dialect() == storage.SQLite {
		query = `SELECT count(*) FROM sqlite_master WHERE name = '` + table + `'`
	}
	fatal(t, n.db.Read(t.Context()).QueryRowContext(t.Context(), query).Scan(&count))
	if count == 0 {
		return ""
	}
	rows, err := n.db.Read(t.Context()).QueryContext(t.Context(), "SELECT * FROM "+table)
	fatal(t, err)
	defer func() { fatal(t, rows.Close()) }()
	columns, err := rows.Columns()
	fatal(t, err)
	var out strings.Builder
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new([]byte)
		}
		fatal(t, rows.Scan(values...))
		for _, v := range values {
			out.Write(*v.(*[]byte))
			out.WriteByte(' ')
		}
	}
	fatal(t, rows.Err())
	return out.String()
}

// A host that starts with sealed secrets subscribes at once.
func TestCase_SEC_05_first_event_after_a_start(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		key, r := keyOf(t), messagingtest.New(t)
		first := newNode(t, storagetest.Open(t, dsn, storage.Config{}), nodeConfig{keyring: key, still: true})
		first.hook(t, data.Record{"url": r.URL, "signing_secret": "s", "headers_secret": `{"X-A":"b"}`})
		next := newNode(t, storagetest.Open(t, dsn, storage.Config{}), nodeConfig{keyring: key})
		for range 20 {
			next.create(t, "account", data.Record{"name": "a"})
		}
		got, err := waitFor(t, r, 20)
		fatal(t, err)
		for _, req := range got {
			if req.Header.Get("X-Objectstack-Signature") != signature("s", req.Body) || req.Header.Get("X-A") != "b" {
				t.Errorf("headers %v", req.Header)
			}
		}
	})
}

func TestCase_SEC_06_clear_text_of_earlier_releases_is_moved(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		key, r := keyOf(t), messagingtest.New(t)
		first := newNode(t, storagetest.Open(t, dsn, storage.Config{}), nodeConfig{keyring: key, still: true})
		id := first.hook(t, data.Record{"url": r.URL})
		_, err := first.db.Write(t.Context()).ExecContext(t.Context(),
			`UPDATE sys_webhook SET definition_json = '{"timeoutMs":2000,"secret":"s3cret","headers":{"X-A":"s3cret-b"}}'`)
		fatal(t, err)
		next := newNode(t, storagetest.Open(t, dsn, storage.Config{}), nodeConfig{keyring: key})
		if dump := next.dump(t, "sys_webhook"); strings.Contains(dump, "s3cret") || !strings.Contains(dump, `{"timeoutMs":2000}`) {
			t.Errorf("after the start: %s", dump)
		}
		next.create(t, "account", data.Record{"name": "a"})
		got, err := waitFor(t, r, 1)
		fatal(t, err)
		if req := got[0]; req.Header.Get("X-Objectstack-Signature") != signature("s3cret", req.Body) || req.Header.Get("X-A") != "s3cret-b" {
			t.Errorf("webhook %s: headers %v", id, req.Header)
		}
	})
}

func TestCase_SEC_08_errors_never_hold_the_value(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		for _, values := range []data.Record{
			{"headers_secret": `{"Authorization":"Bearer s3cret\n"}`},
			{"definition_json": `{"headers":{"Authorization":"Bearer s3cret\n"}}`},
			{"definition_json": `{"headers":{"Authorization":{"s3cret":1}}}`},
		} {
			values["name"], values["url"] = "w", "http://user:s3cret@[/"
			_, err := n.engine.Create(system(t), ObjectName, values)
			if !data.IsCode(err, "VALIDATION_ERROR") || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), `"Authorization"`) {
				t.Errorf("got %v", err)
			}
			var refused *data.Error
			if errors.As(err, &refused) && refused.HTTPStatus() != http.StatusBadRequest {
				t.Errorf("status %d", refused.HTTPStatus())
			}
		}
		for _, values := range []data.Record{
			{"url": "https://svc:s3cret@ss#w@recv.test/in"},
			{"url": r.URL, "definition_json": `{"authentication":{"type":"basic","credentials":"s3cret"}}`},
			{"url": r.URL, "definition_json": `{"secret":"s3cret"`},
			{"url": r.URL, "signing_secret": "whsec_s3cret!", "definition_json": `{"signature":"both"}`},
		} {
			values["name"] = "w"
			_, err := n.engine.Create(system(t), ObjectName, values)
			if !data.IsCode(err, data.CodeValidationFailed) {
				t.Errorf("%v: got %v", values, err)
			}
			var refused *data.Error
			if errors.As(err, &refused) {
				if text, _ := encode(refused); strings.Contains(string(text), "s3cret") {
					t.Errorf("%s", text)
				}
			}
		}
	})
}
