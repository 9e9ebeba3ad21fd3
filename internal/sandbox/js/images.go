//go:build linux && (amd64 || arm64)

package js

import (
	"fmt"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/sandbox/js/bytecode"
	"github.com/skein-dev/skein/internal/sandbox/js/lib"
	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// Most of what a short execution costs is what happens before its own code: the engine makes its built-ins, reads the
// bytecode of the libraries and runs it. So one child of each pool makes images of engines that have that behind them
// (see qjs.MakeImage), and each child begins with a private copy of one.

// imageKind says what an engine of an image has run.
type imageKind struct {
	kind    protocol.Kind
	modules []string // the libraries that are loaded
}

// imageKinds are the images, in the order in which they are packed. The last that suits an execution is used.
//
// Libraries that change globals are only in images for code that names them.
var imageKinds = [...]imageKind{
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

// ImagesSize is the size of the file with the images. It is sparse: what no image takes has no memory.
const ImagesSize = int64(len(imageKinds)) * qjs.ImageSpan

// MakeImages makes the images for a kind of isolate, or all of them if it is 0, in a file of ImagesSize bytes. The engine trusts them, so they
// must be made in a process that has never seen foreign code, and that ends afterwards.
func MakeImages(fd int, kind protocol.Kind) error {
	for i := range imageKinds {
		k := &imageKinds[i]
		if kind != 0 && k.kind != kind {
			continue
		}
		if err := qjs.MakeImage(fd, int64(i)*qjs.ImageSpan, k.prepare); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes the environment of an image and loads its libraries. It returns what environment returns. The functions of the
// host are those of an isolate that never runs: adopt replaces them.
func (k *imageKind) prepare(vm *qjs.VM) ([]qjs.Value, error) {
	if k.kind == protocol.KindRun {
		return nil, nil
	}
	i := &isolate{machine: &machine{vm: vm}}
	i.console.m = i.machine
	begin, err := i.environment()
	if err != nil {
		return nil, err
	}
	vm.SetLoader(&loader{bare: libraries()})
	defer vm.SetLoader(nil)
	for _, name := range k.modules {
		promise, ok := vm.Import(internal, name)
		namespace, err := settled(vm, name, promise, ok)
		if err != nil {
			return nil, err
		}
		if name == zodModule {
			err = makeSchemas(vm, namespace)
		}
		vm.Free(namespace)
		if err != nil {
			return nil, err
		}
	}
	return []qjs.Value{begin}, nil
}

// makeSchemas has zod make schemas, so that it has its classes and its defaults ready.
func makeSchemas(vm *qjs.VM, zod qjs.Value) error {
	script, ok := vm.EvalBytecode(bytecode.Of(bytecode.Schemas))
	if !ok {
		return fmt.Errorf("schemas: %+v", vm.Info(vm.Exception()))
	}
	defer vm.Free(script)
	promise, ok := vm.Call(script, qjs.Undefined, zod)
	v, err := settled(vm, "schemas", promise, ok)
	vm.Free(v)
	return err
}

// settled runs the jobs of an engine until a promise is fulfilled, frees it and returns its value. ok is false where an exception came in place of the promise.
func settled(vm *qjs.VM, what string, promise qjs.Value, ok bool) (qjs.Value, error) {
	if !ok {
		return qjs.Undefined, fmt.Errorf("%s: %+v", what, vm.Info(vm.Exception()))
	}
	defer vm.Free(promise)
	vm.RunJobs()
	state, v := vm.State(promise)
	if state != qjs.Fulfilled {
		return qjs.Undefined, fmt.Errorf("%s: %+v", what, vm.Info(v))
	}
	return v, nil
}

// Images are the mapped images of a file, in the order of imageKinds. There is nil where there is none for this process.
type Images [len(imageKinds)]*qjs.Image

// MapImages maps the images that MakeImages has made in a file. Where that is not possible, engines are made anew.
func MapImages(fd int) (images Images) {
	for i := range images {
		if image, err := qjs.MapImage(fd, int64(i)*qjs.ImageSpan); err == nil {
			images[i] = image
		}
	}
	return images
}

// engine returns the engine for an execution, and what environment has made if the engine has it.
func (images *Images) engine(open *protocol.Open) (vm *qjs.VM, begin qjs.Value, err error) {
	for i, image := range slices.Backward(images[:]) {
		if image != nil && imageKinds[i].suits(open) {
			vm, roots := image.Restore()
			return vm, roots[0], nil
		}
	}
	vm, err = qjs.New()
	return vm, qjs.Undefined, err
}
