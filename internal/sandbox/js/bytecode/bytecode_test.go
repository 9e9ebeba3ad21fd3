//go:build linux && (amd64 || arm64)

package bytecode

import (
	"bytes"
	"io/fs"
	"testing"

	"github.com/skein-dev/skein/internal/sandbox/js/lib"
	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
)

func TestTheBytecodeIsThatOfTheSources(t *testing.T) {
	vm, err := qjs.New()
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	compiled, err := Compile(vm)
	if err != nil {
		t.Fatal(err)
	}
	for name, code := range compiled {
		if kept, err := fs.ReadFile(files, name); err != nil || !bytes.Equal(kept, code) {
			t.Errorf("%s is not what the engine makes of its source (error %v): run go generate ./internal/sandbox/js/bytecode", name, err)
		}
	}
	kept, err := fs.Glob(files, "*.qbc")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range kept {
		if compiled[name] == nil {
			t.Errorf("%s has no source: run go generate ./internal/sandbox/js/bytecode", name)
		}
	}
}

func TestEachModuleAndScriptHasBytecode(t *testing.T) {
	names := []string{Definition, Handler, HTTP, Schemas, URL}
	for _, m := range lib.Modules {
		if len(m.Uses) == 0 {
			names = append(names, m.Name)
		}
	}
	for _, name := range names {
		if len(Of(name)) == 0 {
			t.Errorf("%s has no bytecode", name)
		}
	}
	if Of("other") != nil {
		t.Error("there is bytecode of a module that does not exist")
	}
}
