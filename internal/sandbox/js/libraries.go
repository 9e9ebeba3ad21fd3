//go:build linux && (amd64 || arm64)

package js

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/sandbox/js/lib"
	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
)

// Libraries are what every isolate of definition code needs besides its own modules, as bytecode. What is empty is
// compiled where it is needed. The engine believes bytecode: it only ever comes from CompileLibraries, in a process
// that has never seen foreign code.
type Libraries struct {
	Zod        []byte
	Builder    []byte
	Definition []byte // the script that makes state
}

// parts in the order in which they are packed.
func (l *Libraries) parts() []*[]byte { return []*[]byte{&l.Zod, &l.Builder, &l.Definition} }

// CompileLibraries compiles the libraries for children of the same build.
func CompileLibraries(vm *qjs.VM) (Libraries, error) {
	var l Libraries
	for _, part := range []struct {
		into    *[]byte
		name    string
		code    string
		compile func(name, code string) ([]byte, bool)
	}{
		{&l.Zod, "zod", lib.Zod, vm.Compile},
		{&l.Builder, "@standardagents/builder", lib.Builder, vm.Compile},
		{&l.Definition, internal + "definition", lib.Definition, vm.CompileScript},
	} {
		code, ok := part.compile(part.name, part.code)
		if !ok {
			v := vm.Exception()
			return l, fmt.Errorf("compiling %s: %+v", part.name, vm.Info(v))
		}
		*part.into = code
	}
	return l, nil
}

// Pack writes the libraries as one piece, for the file that children share.
func (l *Libraries) Pack() []byte {
	var b []byte
	for _, part := range l.parts() {
		b = binary.AppendUvarint(b, uint64(len(*part)))
		b = append(b, *part...)
	}
	return b
}

// UnpackLibraries reads what Pack wrote, without copying it.
func UnpackLibraries(b []byte) (Libraries, error) {
	var l Libraries
	for _, part := range l.parts() {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return Libraries{}, errors.New("the file of the libraries is damaged")
		}
		*part, b = b[n:n+int(size):n+int(size)], b[n+int(size):]
	}
	return l, nil
}

// module gives a library as a module, from bytecode where there is some.
func module(bytecode []byte, code string) func() (qjs.Source, error) {
	return func() (qjs.Source, error) {
		if len(bytecode) > 0 {
			return qjs.Source{Bytecode: bytecode}, nil
		}
		return qjs.Source{Code: code}, nil
	}
}

// definition evaluates the script that makes state.
func (l *Libraries) definition(vm *qjs.VM) (qjs.Value, bool) {
	if len(l.Definition) > 0 {
		return vm.EvalBytecode(l.Definition)
	}
	return vm.Eval(internal+"definition", lib.Definition)
}
