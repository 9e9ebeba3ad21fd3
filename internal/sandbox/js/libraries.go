//go:build linux && (amd64 || arm64)

package js

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/sandbox/js/lib"
	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// Libraries are the bytecode of what every isolate of definition code needs besides its own modules. A missing part
// is compiled where it is needed. The engine trusts bytecode, so it must only come from CompileLibraries in a process
// that has never seen foreign code.
type Libraries struct {
	Modules    map[string][]byte // by name of the modules in lib.Modules
	Definition []byte            // the script that makes the environment: globals, state and what begins an isolate

	made   [][]byte     // images, in the process that made them
	packed []span       // where the images are in the packed file
	images []*qjs.Image // mapped
}

// span is a part of the packed file.
type span struct{ offset, length int }

// imageAlign is what the offsets of images in the packed file are multiples of.
const imageAlign = 64 << 10

// CompileLibraries compiles the libraries for children of the same build.
func CompileLibraries(vm *qjs.VM) (Libraries, error) {
	l := Libraries{Modules: map[string][]byte{}}
	failed := func(name string) (Libraries, error) {
		return Libraries{}, fmt.Errorf("compiling %s: %+v", name, vm.Info(vm.Exception()))
	}
	for _, m := range lib.Modules {
		if len(m.Uses) > 0 {
			continue // compiled later, in a process that has what it imports
		}
		code, ok := vm.Compile(m.Name, m.Code())
		if !ok {
			return failed(m.Name)
		}
		l.Modules[m.Name] = code
	}
	code, ok := vm.CompileScript(internal+"definition", lib.Definition())
	if !ok {
		return failed("the definition script")
	}
	l.Definition = code
	return l, nil
}

// MakeImages adds images of engines that have the libraries loaded, for a kind of isolate, or for all if it is 0. It must be called in a
// process that has no use for its engines afterwards.
func (l *Libraries) MakeImages(kind protocol.Kind) (err error) {
	l.made, err = makeImages(l, kind)
	return err
}

// Pack encodes the libraries as one piece, for the file that children share: the modules in the order of lib.Modules,
// then the script.
func (l *Libraries) Pack() []byte {
	var b []byte
	add := func(part []byte) {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	for _, m := range lib.Modules {
		add(l.Modules[m.Name])
	}
	add(l.Definition)
	b = binary.AppendUvarint(b, uint64(len(l.made)))
	for _, image := range l.made {
		b = binary.AppendUvarint(b, uint64(len(image)))
	}
	for _, image := range l.made {
		b = append(b, make([]byte, aligned(len(b))-len(b))...)
		b = append(b, image...)
	}
	return b
}

func aligned(n int) int { return (n + imageAlign - 1) / imageAlign * imageAlign }

// UnpackLibraries decodes what Pack encoded, without copying it.
func UnpackLibraries(b []byte) (Libraries, error) {
	whole := len(b)
	l := Libraries{Modules: make(map[string][]byte, len(lib.Modules))}
	next := func() (part []byte, ok bool) {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return nil, false
		}
		part, b = b[n:n+int(size):n+int(size)], b[n+int(size):]
		return part, true
	}
	var ok bool
	for _, m := range lib.Modules {
		if l.Modules[m.Name], ok = next(); !ok {
			return Libraries{}, errDamaged
		}
	}
	if l.Definition, ok = next(); !ok {
		return Libraries{}, errDamaged
	}
	number := func() (int, bool) {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > uint64(whole) {
			return 0, false
		}
		b = b[n:]
		return int(v), true
	}
	count, ok := number()
	if !ok {
		return Libraries{}, errDamaged
	}
	for range count {
		length, ok := number()
		if !ok {
			return Libraries{}, errDamaged
		}
		l.packed = append(l.packed, span{length: length})
	}
	end := whole - len(b)
	for i := range l.packed {
		l.packed[i].offset = aligned(end)
		if end = l.packed[i].offset + l.packed[i].length; end > whole {
			return Libraries{}, errDamaged
		}
	}
	return l, nil
}

var errDamaged = errors.New("the file of the libraries is damaged")

// module returns a library as a module, from bytecode if there is some.
func module(bytecode []byte, code func() string) func() (qjs.Source, error) {
	return func() (qjs.Source, error) {
		if len(bytecode) > 0 {
			return qjs.Source{Bytecode: bytecode}, nil
		}
		return qjs.Source{Code: code()}, nil
	}
}

// definition evaluates the script that makes state.
func (l *Libraries) definition(vm *qjs.VM) (qjs.Value, bool) {
	if len(l.Definition) > 0 {
		return vm.EvalBytecode(l.Definition)
	}
	return vm.Eval(internal+"definition", lib.Definition())
}
