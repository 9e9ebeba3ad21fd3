package main

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"os"
	"testing"
)

// When the version of Go changes, the patches must be adjusted.
func TestPatchesFitThisGo(t *testing.T) {
	file, err := write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var overlay struct{ Replace map[string]string }
	if err := json.Unmarshal(text, &overlay); err != nil {
		t.Fatal(err)
	}
	if len(overlay.Replace) != 2*len(patches) {
		t.Fatalf("%d files, not %d: %v", len(overlay.Replace), 2*len(patches), overlay.Replace)
	}
	for _, target := range overlay.Replace {
		if _, err := parser.ParseFile(token.NewFileSet(), target, nil, parser.SkipObjectResolution); err != nil {
			t.Error(err)
		}
	}
}

func TestPatchSaysWhenGoHasMoved(t *testing.T) {
	p := patch{changes: []change{{after: "func a() {\n", insert: "\tb()\n"}}}
	if got, err := p.apply("func a() {\n}\n"); err != nil || got != "func a() {\n\tb()\n}\n" {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"", "func a() {\nfunc a() {\n"} {
		if _, err := p.apply(text); !errors.Is(err, errMoved) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
