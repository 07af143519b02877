package storage_test

import (
	"context"
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

var nines = strings.Repeat("9", 38)

func TestCanonicalDecimal(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"0": "0", "-0": "0", "+0.000": "0", "0e99999999999": "0", "-0e-5": "0",
		"1": "1", "+1": "1", "-1": "-1", "007": "7", "1.50": "1.5", "1.": "1", ".5": "0.5", "-.5": "-0.5",
		"1e3": "1000", "1E+3": "1000", "1.5e1": "15", "1.5e-1": "0.15", "150e-2": "1.5", "0.00120e3": "1.2",
		nines: nines, "-" + nines: "-" + nines, nines + ".0": nines,
		"9" + strings.Repeat("0", 37): "9" + strings.Repeat("0", 37),
		"1e37":                        "1" + strings.Repeat("0", 37),
		"0." + nines:                  "0." + nines,
		"1e-38":                       "0." + strings.Repeat("0", 37) + "1",
		"10e-39":                      "0." + strings.Repeat("0", 37) + "1",
		"12345678901234567890.123456789012345678": "12345678901234567890.123456789012345678",
	} {
		if got, err := storage.CanonicalDecimal(in); err != nil || got != want {
			t.Errorf("CanonicalDecimal(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", "-", "+", ".", "-.", "e5", ".e5", "1e", "1e+", "1e1.5", "--1", "+-1", "1 ", " 1", "1_000", "1,5", "0x10",
		"NaN", "Infinity", "inf", "١", "1\x00", "true",
		nines + "9", "1e38", "1" + strings.Repeat("0", 38), "1e-39", nines + ".5", "0." + nines + "1",
		"1e99999999999999999999", "1e-99999999999999999999",
	} {
		if got, err := storage.CanonicalDecimal(in); !errors.Is(err, storage.ErrInvalidDecimal) || got != "" {
			t.Errorf("CanonicalDecimal(%.40q) = %q, %v; want ErrInvalidDecimal", in, got, err)
		}
	}
}

func FuzzCanonicalDecimal(f *testing.F) {
	for _, seed := range []string{"0", "-1.50", "1e3", ".5", nines, "1e-38", "x", "1e99999"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		got, err := storage.CanonicalDecimal(in)
		if err != nil {
			return
		}
		if mantissa, _, _ := strings.Cut(strings.ToLower(in), "e"); got == "0" { // with any exponent
			if strings.ContainsAny(mantissa, "123456789") {
				t.Fatalf("CanonicalDecimal(%q) = 0", in)
			}
			return
		}
		want, ok := new(big.Rat).SetString(in)
		have, ok2 := new(big.Rat).SetString(got)
		if !ok || !ok2 || want.Cmp(have) != 0 {
			t.Fatalf("CanonicalDecimal(%q) = %q, another value", in, got)
		}
		if again, err := storage.CanonicalDecimal(got); err != nil || again != got {
			t.Fatalf("CanonicalDecimal(%q) = %q, %v: not a fixed point", got, again, err)
		}
		if strings.ContainsAny(got, "eE+") || got == "-0" || (strings.Contains(got, ".") && strings.HasSuffix(got, "0")) {
			t.Fatalf("CanonicalDecimal(%q) = %q: not plain", in, got)
		}
	})
}

// decimals draws decimals near each other, with all shapes.
func decimals() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return rapid.StringMatching(`-?(0|[1-9][0-9]{0,3}|[1-9][0-9]{30,36})(\.[0-9]{0,2}|\.0{0,3}[0-9]{1,20})?`).Draw(t, "n")
	})
}

func TestCompareDecimalIsByValue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := decimals().Draw(t, "a"), decimals().Draw(t, "b")
		x, _ := new(big.Rat).SetString(a)
		y, _ := new(big.Rat).SetString(b)
		if got, want := storage.CompareDecimal(a, b), x.Cmp(y); got != want {
			t.Fatalf("CompareDecimal(%q, %q) = %d, want %d", a, b, got, want)
		}
	})
}

func TestCompareDecimalIsATotalOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		any := rapid.OneOf(decimals(), rapid.String(), rapid.SampledFrom([]string{"", "-", "1e3", "NaN", "+1", "1", "-0", "0", "00"}))
		s := rapid.SliceOfN(any, 3, 6).Draw(t, "texts")
		slices.SortFunc(s, storage.CompareDecimal)
		for i := range s {
			for j := range s {
				c := storage.CompareDecimal(s[i], s[j])
				if c != -storage.CompareDecimal(s[j], s[i]) || (i < j && c > 0) {
					t.Fatalf("no order: %q, %q: %d", s[i], s[j], c)
				}
			}
		}
	})
}

func TestCompareDecimalTexts(t *testing.T) {
	t.Parallel()
	order := []string{"-" + nines, "-10", "-9.5", "-9", "-0.5", "-0.05", "0", "0.05", "0.5", "9", "9.5", "10", nines, "", "-", "1e3", "x"}
	for i, a := range order {
		for j, b := range order {
			if got, want := storage.CompareDecimal(a, b), min(1, max(-1, i-j)); got != want {
				t.Errorf("CompareDecimal(%q, %q) = %d, want %d", a, b, got, want)
			}
		}
	}
	for _, same := range [][2]string{{"1", "1.0"}, {"-0", "0"}, {"+5", "5"}, {"007", "7"}, {".5", "0.50"}} {
		if storage.CompareDecimal(same[0], same[1]) != 0 {
			t.Errorf("%q and %q differ", same[0], same[1])
		}
	}
}

// Both dialects keep the digits and sort, search and compare by value.
func TestDecimalColumn(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		ctx := t.Context()
		typ := "NUMERIC"
		if db.Dialect() == storage.SQLite {
			typ = "TEXT COLLATE decimal"
		}
		exec(t, ctx, db, "CREATE TABLE d (n "+typ+" UNIQUE)")
		for _, n := range []string{"10", "9", "-" + nines, nines, "0.5", "-1.25", "0", "0." + nines, "12345678901234567890.123456789012345678"} {
			exec(t, ctx, db, "INSERT INTO d (n) VALUES ($1)", n)
		}
		column := func(query string, args ...any) string {
			t.Helper()
			rows, err := db.Read(ctx).QueryContext(ctx, query, args...)
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			var all []string
			for rows.Next() {
				var n string
				if err := rows.Scan(&n); err != nil {
					t.Fatal(err)
				}
				all = append(all, n)
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			return strings.Join(all, " ")
		}
		want := strings.Join([]string{"-" + nines, "-1.25", "0", "0.5", "0." + nines, "9", "10", "12345678901234567890.123456789012345678", nines}, " ")
		if got := column("SELECT n FROM d ORDER BY n"); got != want {
			t.Errorf("sorted = %s\nwant     %s", got, want)
		}
		if got := column("SELECT n FROM d WHERE n BETWEEN $1 AND $2 ORDER BY n", "-2", "9.5"); got != "-1.25 0 0.5 0."+nines+" 9" {
			t.Errorf("range = %s", got)
		}
		if got := column("SELECT n FROM d WHERE n = $1", "10.00"); got != "10" {
			t.Errorf("n = 10.00 finds %q, want 10", got)
		}
		_, err := db.Write(ctx).ExecContext(ctx, "INSERT INTO d (n) VALUES ($1)", "9.0")
		if _, ok := storage.IsUniqueViolation(err); !ok {
			t.Errorf("9.0 beside 9 = %v, want a unique violation", err)
		}
	})
}

func TestDecimalIndexIsUsed(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.SQLite(t), storage.Config{})
	ctx := context.Background()
	exec(t, ctx, db, "CREATE TABLE d (id INTEGER PRIMARY KEY, n TEXT COLLATE decimal, m TEXT)")
	exec(t, ctx, db, "CREATE INDEX d_n ON d (n)")
	for query, want := range map[string]string{
		"SELECT id FROM d WHERE n = $1":            "SEARCH d USING COVERING INDEX d_n (n=?)",
		"SELECT id FROM d WHERE n > $1 ORDER BY n": "SEARCH d USING COVERING INDEX d_n (n>?)",
		"SELECT m FROM d ORDER BY n DESC LIMIT $1": "SCAN d USING INDEX d_n",
	} {
		var id, parent, unused int
		var detail string
		err := db.Read(ctx).QueryRowContext(ctx, "EXPLAIN QUERY PLAN "+query, "1").Scan(&id, &parent, &unused, &detail)
		if err != nil || detail != want {
			t.Errorf("%s: plan = %q, %v; want %q", query, detail, err, want)
		}
	}
}
