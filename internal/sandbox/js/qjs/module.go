//go:build linux && (amd64 || arm64)

package qjs

import (
	"fmt"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/libquickjs"
)

// Loader finds modules. The engine calls it while it links, so it must not run code.
type Loader interface {
	// Resolve returns the name of the module that base imports as specifier.
	Resolve(base, specifier string) (name string, err error)
	// Load returns the module of that name. It is called once for each name.
	Load(name string) (Source, error)
}

// Source is a module in one of three forms.
type Source struct {
	Code      string
	Bytecode  []byte // from Compile of this version of the engine, never from an untrusted place
	Synthetic *SyntheticModule
}

// SyntheticModule is a module of the host, whose exports are values. The VM takes the values over.
type SyntheticModule struct{ Exports []Export }

// Export is an export of a SyntheticModule.
type Export struct {
	Name  string
	Value Value
}

// SetLoader sets the source of modules.
func (vm *VM) SetLoader(l Loader) { vm.loader = l }

// cGo copies a NUL-terminated text of the engine.
func cGo(tls *libc.TLS, p uintptr) string {
	if p == 0 {
		return ""
	}
	return string(unsafe.Slice(at[byte](p), libc.Xstrlen(tls, p)))
}

func normalizeModule(tls *libc.TLS, ctx, base, specifier, opaque uintptr) uintptr {
	vm := byID(opaque)
	if vm.loader == nil {
		return vm.failLoad(fmt.Errorf("there are no modules to import here"))
	}
	name, err := vm.loader.Resolve(cGo(tls, base), cGo(tls, specifier))
	if err != nil {
		return vm.failLoad(err)
	}
	return lib.Xjs_strndup(tls, ctx, vm.cText(name), libc.Tsize_t(len(name)))
}

func loadModule(tls *libc.TLS, ctx, cname, opaque uintptr, _ Value) uintptr {
	vm := byID(opaque)
	name := cGo(tls, cname)
	src, err := vm.loader.Load(name)
	switch {
	case err != nil:
		return vm.failLoad(err)
	case src.Synthetic != nil:
		return vm.synthesize(name, src.Synthetic)
	case src.Bytecode != nil:
		return vm.moduleOf(vm.read(src.Bytecode))
	}
	return vm.moduleOf(vm.eval(name, src.Code, lib.MJS_EVAL_TYPE_MODULE|lib.MJS_EVAL_FLAG_COMPILE_ONLY))
}

func (vm *VM) failLoad(err error) uintptr {
	vm.ThrowError("ReferenceError", err.Error())
	return 0
}

// moduleOf returns the module of a value. The engine's list of modules keeps it alive.
func (vm *VM) moduleOf(v Value) uintptr {
	if isException(v) {
		return 0
	}
	m := pointer(v)
	vm.Free(v)
	return m
}

func (vm *VM) eval(name, code string, flags int32) Value {
	file := vm.cString(name)
	defer libc.Xfree(vm.tls, file)
	src := vm.cString(code)
	defer libc.Xfree(vm.tls, src)
	return lib.XJS_Eval(vm.tls, vm.ctx, src, libc.Tsize_t(len(code)), file, flags)
}

// Eval runs a script (not a module) of our own and returns its last value.
func (vm *VM) Eval(name, code string) (Value, bool) {
	v := vm.eval(name, code, lib.MJS_EVAL_FLAG_STRICT)
	return v, !isException(v)
}

// Import loads and runs a module, as if imported by the module from, and returns a promise of its namespace.
func (vm *VM) Import(from, name string) (Value, bool) {
	base, file := vm.cString(from), vm.cString(name)
	defer libc.Xfree(vm.tls, base)
	defer libc.Xfree(vm.tls, file)
	v := lib.XJS_LoadModule(vm.tls, vm.ctx, base, file)
	return v, !isException(v)
}

// Compile returns the bytecode of a module. It works only with this version of the engine.
func (vm *VM) Compile(name, code string) ([]byte, bool) {
	return vm.compile(name, code, lib.MJS_EVAL_TYPE_MODULE)
}

// CompileScript returns the bytecode of a script for EvalBytecode.
func (vm *VM) CompileScript(name, code string) ([]byte, bool) {
	return vm.compile(name, code, lib.MJS_EVAL_FLAG_STRICT)
}

// EvalBytecode runs the result of CompileScript as Eval does.
func (vm *VM) EvalBytecode(code []byte) (Value, bool) {
	script := vm.read(code)
	if isException(script) {
		return script, false
	}
	v := lib.XJS_EvalFunction(vm.tls, vm.ctx, script) // takes script over
	return v, !isException(v)
}

func (vm *VM) compile(name, code string, flags int32) ([]byte, bool) {
	v := vm.eval(name, code, flags|lib.MJS_EVAL_FLAG_COMPILE_ONLY)
	if isException(v) {
		return nil, false
	}
	defer vm.Free(v)
	size := vm.tls.Alloc(8)
	defer vm.tls.Free(8)
	p := lib.XJS_WriteObject(vm.tls, vm.ctx, size, v, lib.MJS_WRITE_OBJ_BYTECODE)
	if p == 0 {
		return nil, false
	}
	defer lib.Xjs_free(vm.tls, vm.ctx, p)
	return append([]byte(nil), unsafe.Slice(at[byte](p), *at[libc.Tsize_t](size))...), true
}

func (vm *VM) read(code []byte) Value {
	p := libc.Xmalloc(vm.tls, libc.Tsize_t(len(code)))
	if p == 0 {
		return vm.throwOutOfMemory()
	}
	defer libc.Xfree(vm.tls, p)
	copy(unsafe.Slice(at[byte](p), len(code)), code)
	return lib.XJS_ReadObject(vm.tls, vm.ctx, p, libc.Tsize_t(len(code)), lib.MJS_READ_OBJ_BYTECODE)
}

// synthesize creates a module of the host. Its exports are set when the engine evaluates it.
func (vm *VM) synthesize(name string, s *SyntheticModule) uintptr {
	m := lib.XJS_NewCModule(vm.tls, vm.ctx, vm.cText(name), fp(initModule))
	if m == 0 {
		return 0
	}
	vm.modules[name] = s
	for _, e := range s.Exports {
		if lib.XJS_AddModuleExport(vm.tls, vm.ctx, m, vm.cText(e.Name)) < 0 {
			return 0
		}
	}
	return m
}

func initModule(tls *libc.TLS, ctx, m uintptr) int32 {
	vm := byContext(tls, ctx)
	atom := lib.XJS_GetModuleName(tls, ctx, m)
	cname := lib.XJS_AtomToCStringLen(tls, ctx, 0, atom)
	lib.XJS_FreeAtom(tls, ctx, atom)
	if cname == 0 {
		return -1
	}
	name := cGo(tls, cname)
	lib.XJS_FreeCString(tls, ctx, cname)
	s := vm.modules[name]
	delete(vm.modules, name)
	if s == nil {
		return -1
	}
	failed := int32(0)
	for _, e := range s.Exports {
		if lib.XJS_SetModuleExport(tls, ctx, m, vm.cText(e.Name), e.Value) < 0 {
			failed = -1
		}
	}
	return failed
}
