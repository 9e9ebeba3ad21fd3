//go:build linux && (amd64 || arm64)

// Command generate compiles the modules and scripts of package lib for the engine, into the present folder. Run it with go generate, after one
// of them or the version of the engine has changed.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/skein-dev/skein/internal/sandbox/js/bytecode"
	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
)

func main() {
	if err := generate(); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func generate() error {
	vm, err := qjs.New()
	if err != nil {
		return err
	}
	defer vm.Close()
	compiled, err := bytecode.Compile(vm)
	if err != nil {
		return err
	}
	old, err := filepath.Glob("*.qbc")
	if err != nil {
		return err
	}
	for _, name := range old {
		if compiled[name] == nil {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	for name, code := range compiled {
		if err := os.WriteFile(name, code, 0o644); err != nil {
			return err
		}
	}
	return nil
}
