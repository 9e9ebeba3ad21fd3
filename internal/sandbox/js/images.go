//go:build linux && (amd64 || arm64)

package js

import (
	"fmt"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/sandbox/js/lib"
	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// Most of what a short execution costs is what happens before its own code: the engine makes its built-ins, reads the
// bytecode of the libraries and runs it. So the process that compiles the libraries also makes images of engines that
// have that behind them (see qjs.MakeImage), and each child begins with a private copy of one.

// imageKind says what an engine of an image has run.
type imageKind struct {
	kind    protocol.Kind
	modules []string // the libraries that are loaded
}

// imageKinds are the images, in the order in which they are packed. The last that suits an execution is used.
//
// Libraries that change globals are only in images for code that names them.
var imageKinds = []imageKind{
	{kind: protocol.KindRun},
	{kind: protocol.KindIsolate, modules: []string{builderModule}},
	{kind: protocol.KindIsolate, modules: []string{builderModule, zodModule, "zod/v4"}},
}

const (
	builderModule = "@standardagents/builder"
	zodModule     = "zod"
)

// suits reports whether an engine of the image is as good as a new one for an execution.
func (k *imageKind) suits(open *protocol.Open) bool {
	if open.Kind != k.kind {
		return false
	}
	named := !slices.Contains(k.modules, zodModule)
	for _, m := range open.Modules {
		if len(k.modules) > 0 && lib.Has(m.Name) {
			return false // a module of the definition's own, whose name the image has given away: libraries load others
		}
		named = named || strings.Contains(m.Source, zodModule)
	}
	return named
}

// makeImages makes the images for a kind of isolate, or all of them if it is 0. The others are empty. libs has the bytecode.
func makeImages(libs *Libraries, kind protocol.Kind) ([][]byte, error) {
	var out [][]byte
	for _, k := range imageKinds {
		if kind != 0 && k.kind != kind {
			out = append(out, nil)
			continue
		}
		b, err := qjs.MakeImage(func(vm *qjs.VM) ([]qjs.Value, error) { return k.prepare(vm, libs) })
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// prepare makes the environment of an image and loads its libraries. It returns what environment returns. The functions of the
// host are those of an isolate that never runs: adopt replaces them.
func (k *imageKind) prepare(vm *qjs.VM, libs *Libraries) ([]qjs.Value, error) {
	if k.kind == protocol.KindRun {
		return nil, nil
	}
	i := &isolate{machine: &machine{vm: vm, libs: *libs}}
	i.console.m = i.machine
	begin, err := i.environment()
	if err != nil {
		return nil, err
	}
	l := &loader{bare: map[string]func() (qjs.Source, error){}}
	for _, m := range lib.Modules {
		l.bare[m.Name] = module(libs.Modules[m.Name], m.Code)
	}
	vm.SetLoader(l)
	defer vm.SetLoader(nil)
	for _, name := range k.modules {
		promise, ok := vm.Import(internal, name)
		if !ok {
			return nil, fmt.Errorf("%s: %+v", name, vm.Info(vm.Exception()))
		}
		vm.RunJobs()
		state, v := vm.State(promise)
		if state != qjs.Fulfilled {
			return nil, fmt.Errorf("%s: %+v", name, vm.Info(v))
		}
		vm.Free(v)
		vm.Free(promise)
	}
	return []qjs.Value{begin}, nil
}

// engine returns the engine for an execution, and what environment has made if the engine has it.
func (l *Libraries) engine(open *protocol.Open) (vm *qjs.VM, begin qjs.Value, err error) {
	for i, image := range slices.Backward(l.images) {
		if image != nil && imageKinds[i].suits(open) {
			vm, roots := image.Restore()
			return vm, roots[0], nil
		}
	}
	vm, err = qjs.New()
	return vm, qjs.Undefined, err
}

// mapImages maps the images of a packed file. Where that is not possible, engines are made anew.
func (l *Libraries) mapImages(packed []byte, fd int) {
	if len(l.packed) != len(imageKinds) {
		return
	}
	var images []*qjs.Image
	for _, at := range l.packed {
		if at.length == 0 {
			images = append(images, nil)
			continue
		}
		image, err := qjs.MapImage(packed[at.offset:at.offset+at.length], fd, int64(at.offset))
		if err != nil {
			return
		}
		images = append(images, image)
	}
	l.images = images
}
