package client

import (
	"bytes"
	"slices"
	"testing"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// FuzzRunCodeOptions passes any value to runCode as its options. Either it is refused as a link error that says what
// is wrong, or the other side can decode what is sent.
func FuzzRunCodeOptions(f *testing.F) {
	var deep any = "x"
	for range 400 {
		deep = map[string]any{"globals": deep}
	}
	for _, o := range []any{
		nil, value.Undefined{}, 1.0, "text", []any{}, map[string]any{"execute": map[string]any{"fn": "f", "args": []any{1.0}}, "filename": "a/../b.ts"},
		map[string]any{"globals": map[string]any{"g": sandbox.FuncRef(1), "": 1.0}}, map[string]any{"imports": map[string]any{"skein:host": map[string]any{"x": 1.0}}},
		map[string]any{"modules": map[string]any{"../../x.ts": "1", "./a.ts": "2"}}, map[string]any{"modules": []any{}}, map[string]any{"memoryLimitBytes": -1.0},
		map[string]any{"memoryLimitBytes": 1e300}, map[string]any{"report": 1.0}, map[string]any{"language": "python"}, map[string]any{"timeout": 1.0, "__proto__": 1.0},
		map[string]any{"execute": map[string]any{"args": []any{sandbox.FuncRef(3)}}}, map[string]any{"filename": "\x00:(main)"}, deep,
	} {
		b, err := value.Encode([]any{"export default 1", o, 1.0, 0.0})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := value.DecodeWithFuncs(b)
		args, ok := v.([]any)
		if err != nil || !ok {
			return
		}
		req, failed := parseRunCode(nil, args)
		if failed == nil {
			var p *prepared
			if p, failed = prepare(req); failed == nil {
				accepted(t, args, p)
				return
			}
		}
		if failed.Message == "" || failed.Name == "" || len(failed.Message) > 4<<10 {
			t.Fatalf("%#v is refused with %+v", args, failed)
		}
	})
}

var known = []string{"execute", "filename", "globals", "imports", "language", "memoryLimitBytes", "modules", "report"}

func accepted(t *testing.T, args []any, p *prepared) {
	t.Helper()
	o, err := protocol.ParseOpen(bytes.Clone(p.open))
	if err != nil {
		t.Fatalf("%#v goes out as what nobody reads: %v", args, err)
	}
	if len(o.Bindings) != len(p.funcs) {
		t.Fatalf("%d bindings for %d functions", len(o.Bindings), len(p.funcs))
	}
	options, _ := arg(args, 1).(map[string]any)
	for name, v := range options {
		if _, unset := v.(value.Undefined); !unset && !slices.Contains(known, name) {
			t.Fatalf("the unknown option %q was accepted", name)
		}
	}
}
