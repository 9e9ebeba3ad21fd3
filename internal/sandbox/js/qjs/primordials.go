//go:build linux && (amd64 || arm64)

package qjs

// primordials are the built-ins that conversions need, saved before code of the program could replace them.
type primordials struct {
	errors                    map[string]Value
	mapClass, mapSet, mapEach Value
	setClass, setAdd, setEach Value
	bigInt, bigIntText        Value
	regexpText                Value
	typedLength               Value // the getter of %TypedArray%.prototype.length
}

var errorNames = [...]string{"Error", "TypeError", "RangeError", "SyntaxError", "ReferenceError", "EvalError", "URIError", "InternalError", "AggregateError"}

// capture saves the primordials. It runs in a fresh engine without a memory limit, so it fails only in a broken
// build.
func (vm *VM) capture() {
	// Parts of the language that the engine lacks and that the compiler relies on.
	if _, ok := vm.Eval("skein:language", "for (const name of ['dispose', 'asyncDispose']) if (!(name in Symbol)) Object.defineProperty(Symbol, name, { value: Symbol.for('Symbol.' + name) })"); !ok {
		panic("the engine refuses its first script")
	}
	global := vm.Global()
	defer vm.Free(global)
	path := func(names ...string) Value {
		v := vm.Dup(global)
		for _, name := range names {
			next, ok := vm.Get(v, name)
			vm.Free(v)
			if !ok || IsUndefined(next) {
				panic("the engine lacks " + name)
			}
			v = next
		}
		return v
	}
	p := &vm.prims
	p.errors = map[string]Value{}
	for _, name := range errorNames {
		p.errors[name] = path(name)
	}
	p.mapClass, p.mapSet, p.mapEach = path("Map"), path("Map", "prototype", "set"), path("Map", "prototype", "forEach")
	p.setClass, p.setAdd, p.setEach = path("Set"), path("Set", "prototype", "add"), path("Set", "prototype", "forEach")
	p.bigInt, p.bigIntText = path("BigInt"), path("BigInt", "prototype", "toString")
	p.regexpText = path("RegExp", "prototype", "toString")
	typedLength, ok := vm.Eval("skein:length", "Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Uint8Array.prototype), 'length').get")
	if !ok {
		panic("the engine has no length of typed arrays")
	}
	p.typedLength = typedLength

	if vm.collector, ok = vm.Func("collect", 2, vm.collect); !ok {
		panic("the engine cannot make a function")
	}
}

// collect keeps its arguments for the encoder.
func (vm *VM) collect(args []Value) (Value, bool) {
	for _, v := range args[:2] {
		vm.collected = append(vm.collected, vm.Dup(v))
	}
	return Undefined, true
}

const capturedValues = 11

// captured returns where the captured values are, except the errors.
func (vm *VM) captured() [capturedValues]*Value {
	p := &vm.prims
	return [...]*Value{
		&p.mapClass, &p.mapSet, &p.mapEach, &p.setClass, &p.setAdd, &p.setEach, &p.bigInt, &p.bigIntText, &p.regexpText, &p.typedLength, &vm.collector,
	}
}

func (vm *VM) release() {
	for _, v := range vm.prims.errors {
		vm.Free(v)
	}
	for _, v := range vm.captured() {
		vm.Free(*v)
	}
}
