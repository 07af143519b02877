package data_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func hook() object.Schema {
	return object.Schema{Name: "sys_hook", IsSystem: true, Fields: object.Fields{
		{Name: "name", Type: object.Text, Required: true},
		{Name: "token", Type: object.Secret, MaxLength: ptr(40)},
		{Name: "word", Type: object.Password},
		{Name: "hidden", Type: object.Text, Internal: true},
	}}
}

// sealedRows counts what sys_secret holds.
func sealedRows(t testing.TB, db *storage.DB) (n int) {
	t.Helper()
	if err := db.Read(t.Context()).QueryRowContext(t.Context(), "SELECT count(*) FROM sys_secret").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{hook()}, func(t *testing.T, b *bundle) {
		created := must(b.Create(b.as, "sys_hook", data.Record{"name": "a", "token": "topsecret", "word": "pass"}))(t)
		ref := created.Record["token"].(string)
		if len(ref) != len("secret:sec_")+32 || !strings.HasPrefix(ref, "secret:sec_") {
			t.Fatalf("ref %q", ref)
		}
		equal(t, "password after create", created.Record["word"], any(data.Mask))
		reveal := func(ref string) string { return string(must(b.Reveal(b.system, ref))(t)) }
		equal(t, "revealed", reveal(ref), "topsecret")
		read := must(b.Get(b.as, "sys_hook", created.ID))(t)
		equal(t, "read", []any{read["token"], read["word"]}, []any{data.Mask, data.Mask})
		if _, shown := read["hidden"]; shown {
			t.Error("an internal field was returned")
		}

		update := func(values data.Record) any {
			return must(b.Update(b.as, "sys_hook", created.ID, values, data.Match{}))(t).Record["token"]
		}
		equal(t, "kept by mask", update(data.Record{"token": data.Mask, "word": data.Mask}), any(ref))
		equal(t, "kept by own ref", update(data.Record{"token": ref}), any(ref))
		equal(t, "kept when absent", update(data.Record{"name": "b"}), any(ref))
		equal(t, "sealed rows", sealedRows(t, b.db), 2)
		next := update(data.Record{"token": "other"}).(string)
		equal(t, "replaced", reveal(next), "other")
		if _, err := b.Reveal(b.system, ref); err != data.ErrNoSecret {
			t.Errorf("the replaced secret: %v, want ErrNoSecret", err)
		}
		equal(t, "cleared", update(data.Record{"token": nil}), nil)
		equal(t, "sealed rows after clearing", sealedRows(t, b.db), 1)

		_, err := b.Update(b.as, "sys_hook", created.ID, data.Record{"token": "secret:sec_00000000000000000000000000000000"}, data.Match{})
		refused(t, err, `{"error":"token cannot take over a stored secret","code":"VALIDATION_FAILED","fields":[{"field":"token","code":"invalid_value","message":"token cannot take over a stored secret","label":"token"}],"object":"sys_hook"}`)
		_, err = b.Create(b.as, "sys_hook", data.Record{"name": "a", "token": next})
		if e := must2[*data.Error](t, err); e.Message != "token cannot take over a stored secret" {
			t.Errorf("a reference on create: %v", err)
		}
		equal(t, "a mask on create", must(b.Create(b.as, "sys_hook", data.Record{"id": "masked", "name": "a", "token": data.Mask}))(t).Record["token"], nil)
		_, err = b.Create(b.as, "sys_hook", data.Record{"name": "a", "token": strings.Repeat("x", 41)})
		if e := must2[*data.Error](t, err); e.Message != "token must be ≤ 40 characters (got 41)" || e.Fields[0].Value != nil {
			t.Errorf("too long: %+v", e)
		}
		if _, err := b.Reveal(b.as, ref); !data.IsCode(err, data.CodePermissionDenied) {
			t.Errorf("reveal by a user: %v", err)
		}
		if err := b.Delete(b.as, "sys_hook", created.ID, data.Match{}); err != nil {
			t.Fatal(err)
		}
		equal(t, "sealed rows after the delete", sealedRows(t, b.db), 0)
		for _, e := range b.log.all(t) {
			text := jsonOf(t, &e)
			for _, word := range []string{"topsecret", "pass", "secret:sec_", "token", "word", "hidden", data.Mask} {
				if strings.Contains(text, word) {
					t.Errorf("the event %s holds %q", text, word)
				}
			}
		}
	})
}

// A write that fails after its secret was sealed leaves nothing behind.
func TestSecretsRollBack(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{hook()}, func(t *testing.T, b *bundle) {
		id := must(b.Create(b.as, "sys_hook", data.Record{"id": "fixed", "name": "a", "token": "one"}))(t).ID
		if _, err := b.Create(b.as, "sys_hook", data.Record{"id": id, "name": "a", "token": "two"}); !data.IsCode(err, data.CodeUniqueViolation) {
			t.Fatalf("got %v, want UNIQUE_VIOLATION", err)
		}
		equal(t, "sealed rows", sealedRows(t, b.db), 1)
	})
}

// A sealed value is bound to its reference: put under another one it does not
// open.
func TestSecretsAreBoundToTheirReference(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{hook()}, func(t *testing.T, b *bundle) {
		one := must(b.Create(b.as, "sys_hook", data.Record{"name": "a", "token": "one"}))(t).Record["token"].(string)
		two := must(b.Create(b.as, "sys_hook", data.Record{"name": "b", "token": "two"}))(t).Record["token"].(string)
		id := func(ref string) string { return strings.TrimPrefix(ref, "secret:") }
		exec(t, b.db, "UPDATE sys_secret SET sealed = (SELECT sealed FROM sys_secret WHERE id = $1) WHERE id = $2", id(one), id(two))
		if text, err := b.Reveal(b.system, two); err == nil {
			t.Errorf("another reference's value was opened: %q", text)
		}
	})
}

func TestSecretsNeedAKeyring(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db, hook())
		bare := must(data.New(t.Context(), db, data.Config{Events: b.log, Authorizer: allowAll{}}))(t)
		if err := bare.Define(t.Context(), hook()); err != nil {
			t.Fatal(err)
		}
		_, err := bare.Create(b.as, "sys_hook", data.Record{"name": "a", "token": "x"})
		refused(t, err, `{"error":"token cannot be stored: this host has no key for secrets","code":"VALIDATION_FAILED","fields":[{"field":"token","code":"invalid_value","message":"token cannot be stored: this host has no key for secrets","label":"token"}],"object":"sys_hook"}`)
		must(bare.Create(b.as, "sys_hook", data.Record{"name": "a", "token": nil}))(t)
	})
}

func TestLargeNumbersKeepTheirDigits(t *testing.T) {
	t.Parallel()
	schema := object.Schema{Name: "ledger", Fields: object.Fields{{Name: "amount", Type: object.Currency}}}
	each(t, []object.Schema{schema}, func(t *testing.T, b *bundle) {
		for in, want := range map[string]string{
			"9007199254740993": "9007199254740993", "123456789012345678901234567890": "123456789012345678901234567890",
			"0.30000000000000004": "0.30000000000000004", "-0": "0", "1e3": "1000", "1.50": "1.5", `"0012.340"`: "12.34",
			"99999999999999999999999999999999999999": "99999999999999999999999999999999999999",
		} {
			values := must(data.DecodeRecord([]byte(`{"amount":` + in + `}`)))(t)
			b.log.clear(t)
			id := must(b.Create(b.as, "ledger", values))(t).ID
			equal(t, in+" read", must(b.Get(b.as, "ledger", id))(t)["amount"], any(json.Number(want)))
			if after := string(b.log.all(t)[0].After); !strings.HasSuffix(after, `"amount":`+want+`}`) {
				t.Errorf("%s: the event holds %s", in, after)
			}
		}
		for _, in := range []string{"1e400", "1e38", "123456789012345678901234567890123456789", `"12a"`, "true", "[1]", `{"$gt":1}`} {
			_, err := b.Create(b.as, "ledger", must(data.DecodeRecord([]byte(`{"amount":`+in+`}`)))(t))
			if e := must2[*data.Error](t, err); len(e.Fields) != 1 || e.Fields[0].Code != "invalid_number" {
				t.Errorf("%s: %v", in, err)
			}
		}
	})
}
