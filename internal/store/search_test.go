package store_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/skein-dev/skein/internal/store"
)

func TestParseSearch(t *testing.T) {
	for text, want := range map[string][]store.SearchTerm{
		`invoice Paid`:           {{Words: []string{"invoice"}}, {Words: []string{"Paid"}}},
		`"last week" -draft`:     {{Words: []string{"last", "week"}}, {Words: []string{"draft"}, Not: true}},
		`pay* -"to do"`:          {{Words: []string{"pay"}, Prefix: true}, {Words: []string{"to", "do"}, Not: true}},
		`foo-bar a"b`:            {{Words: []string{"foo", "bar"}}, {Words: []string{"a"}}, {Words: []string{"b"}}},
		`x OR y) NEAR(z, 2)`:     {{Words: []string{"x"}}, {Words: []string{"OR"}}, {Words: []string{"y"}}, {Words: []string{"NEAR", "z"}}, {Words: []string{"2"}}},
		"ünïcode 日本":             {{Words: []string{"ünïcode"}}, {Words: []string{"日本"}}},
		`"a b"* !!! ' ; -- drop`: {{Words: []string{"a", "b"}, Prefix: true}, {Words: []string{"drop"}}},
	} {
		got, err := store.ParseSearch(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "  ", "-only -nots", `"" * -`, strings.Repeat("a ", 40), strings.Repeat("x", 1001)} {
		if _, err := store.ParseSearch(text); !errors.Is(err, store.ErrSearchText) {
			t.Errorf("%q gives %v", text, err)
		}
	}
}

func TestSnippet(t *testing.T) {
	terms, err := store.ParseSearch("needle")
	if err != nil {
		t.Fatal(err)
	}
	if got := store.Snippet("a  Needle\nhere", terms); got != "a Needle here" {
		t.Error(got)
	}
	got := store.Snippet(strings.Repeat("hay ", 500)+"needle "+strings.Repeat("hay ", 500), terms)
	if !strings.HasPrefix(got, "…") || !strings.HasSuffix(got, "…") || !strings.Contains(got, "needle") || len(got) > 200 {
		t.Error(got)
	}
}

func FuzzParseSearch(f *testing.F) {
	for _, seed := range []string{`a "b c" -d e*`, `"`, `-`, `*`, "\x00\xff", `a" OR "b`, `NOT (x NEAR y)`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		terms, err := store.ParseSearch(text)
		if err != nil {
			if !errors.Is(err, store.ErrSearchText) {
				t.Fatal(err)
			}
			return
		}
		for _, term := range terms {
			if len(term.Words) == 0 {
				t.Fatalf("%q has a term without words", text)
			}
			for _, w := range term.Words {
				if w == "" || strings.ContainsAny(w, "\"'*\\-:&|!() \x00") || !utf8.ValidString(w) {
					t.Fatalf("%q has the word %q", text, w)
				}
			}
		}
		if s := store.Snippet(text, terms); !utf8.ValidString(strings.ToValidUTF8(s, "")) {
			t.Fatal(s)
		}
	})
}
