//go:build linux && (amd64 || arm64)

package qjs

import (
	"errors"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/skein-dev/skein/internal/sandbox/value"
)

func newVM(t *testing.T) *VM {
	t.Helper()
	vm, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(vm.Close)
	return vm
}

func eval(t *testing.T, vm *VM, code string) Value {
	t.Helper()
	v, ok := vm.Eval("test", code)
	if !ok {
		e := vm.Exception()
		t.Fatalf("%+v", vm.Info(e))
	}
	return v
}

func TestValuesCrossBothWays(t *testing.T) {
	big1, _ := new(big.Int).SetString("-123456789012345678901234567890", 10)
	for code, want := range map[string]any{
		"undefined": value.Undefined{}, "null": nil, "true": true, "false": false, "1": 1.0, "-7": -7.0, "1.5": 1.5, "2**53": math.Pow(2, 53), "'hé\\u0000x'": "hé\x00x",
		"10n": big.NewInt(10), "-123456789012345678901234567890n": big1, "new Date(1700000000123)": time.UnixMilli(1700000000123).UTC(),
		"[1,[2],undefined]": []any{1.0, []any{2.0}, value.Undefined{}}, "({a:1,b:{c:[true]},__proto__:{z:1}})": map[string]any{"a": 1.0, "b": map[string]any{"c": []any{true}}},
		"new Map([['a',1],[{k:2},new Set([3])]])": &value.Map{Entries: [][2]any{{"a", 1.0}, {map[string]any{"k": 2.0}, &value.Set{Members: []any{3.0}}}}},
		"new Uint8Array([1,2,255])":               []byte{1, 2, 255}, "new Uint8Array([1,2,255]).subarray(1)": []byte{2, 255}, "new Uint8Array([9]).buffer": []byte{9}, "new Float64Array([1.5])": []any{1.5},
		"new Error('x')": map[string]any{"name": "Error", "message": "x"}, "Object('s')": "s", "({toJSON(){return 5}})": 5.0, "new Uint8Array(0)": []byte{},
		"new (class A{x=1;m(){}})": map[string]any{"x": 1.0}, "new Proxy([1,2],{})": []any{1.0, 2.0}, "'\\ud800x'": "\uFFFDx", "1/0": math.Inf(1),
	} {
		vm := newVM(t)
		v := eval(t, vm, "("+code+")")
		b, err := vm.Encode(v, nil)
		vm.Free(v)
		if err != nil {
			t.Errorf("%s: %v", code, err)
			continue
		}
		got, err := value.Decode(b)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %#v, want %#v, %v", code, got, want, err)
		}
		b2, err := value.Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		back, err := vm.Decode(b2)
		if err != nil {
			t.Errorf("%s: decode: %v", code, err)
			continue
		}
		b3, err := vm.Encode(back, nil)
		vm.Free(back)
		if err != nil || string(b3) != string(b2) {
			t.Errorf("%s: %x is not %x: %v", code, b3, b2, err)
		}
	}
}

func TestWhatCannotCrossIsRefusedByPlace(t *testing.T) {
	for code, want := range map[string]string{
		"()=>1":                                 "this value cannot cross the sandbox: a function",
		"({a:[1,Symbol('x')]})":                 "the value at .a[1] cannot cross the sandbox: a symbol",
		"(()=>{const a={};a.b={a};return a})()": "the value at .b.a cannot cross the sandbox: it contains itself",
		"Promise.resolve(1)":                    "this value cannot cross the sandbox: a promise: await it first",
		"(()=>{let a=[];for(let i=0;i<1000;i++)a=[a];return a})()": "nests deeper than 500 levels",
		"new Date(NaN)":                      "an invalid Date",
		"({get x(){throw new Error('no')}})": ErrThrown.Error(),
		"new Array(1e7)":                     "more than 2000000 values",
	} {
		vm := newVM(t)
		v := eval(t, vm, "("+code+")")
		_, err := vm.Encode(v, nil)
		vm.Free(v)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", code, err)
		}
		if errors.Is(err, ErrThrown) {
			vm.Free(vm.Exception())
		}
	}
}

func TestMemoryLimit(t *testing.T) {
	vm := newVM(t)
	vm.SetMemoryLimit(16 << 20)
	_, ok := vm.Eval("test", "const a=[];for(;;)a.push(new Array(1000).fill(1))")
	if ok {
		t.Fatal("no error")
	}
	e := vm.Exception()
	info := vm.Info(e)
	vm.Free(e)
	if !info.IsOutOfMemory() || !vm.OutOfMemory() {
		t.Fatalf("%+v", info)
	}
	if p := vm.PeakMemory(); p < 14<<20 || p > 17<<20+1<<19 {
		t.Fatalf("peak %d", p)
	}
}

func TestStopIsSticky(t *testing.T) {
	vm := newVM(t)
	vm.Stop()
	start := time.Now()
	if _, ok := vm.Eval("test", "for(;;){try{for(;;);}catch{}finally{}}"); ok {
		t.Fatal("ran on")
	}
	if d := time.Since(start); d > time.Minute {
		t.Fatal(d)
	}
	vm.Free(vm.Exception())
}

func TestPromisesAndFunctions(t *testing.T) {
	vm := newVM(t)
	var resolve Value
	f, _ := vm.Func("later", 0, func([]Value) (Value, bool) {
		p, res, rej, _ := vm.Promise()
		vm.Free(rej)
		resolve = res
		return p, true
	})
	g := vm.Global()
	vm.Define(g, "later", f, Plain)
	vm.Free(g)
	p := eval(t, vm, "(async()=>(await later())+1)()")
	vm.RunJobs()
	if s, _ := vm.State(p); s != Pending {
		t.Fatal(s)
	}
	r, _ := vm.Call(resolve, Undefined, Int(41))
	vm.Free(r)
	vm.Free(resolve)
	vm.RunJobs()
	s, v := vm.State(p)
	if n, _ := ToNumber(v); s != Fulfilled || n != 42 {
		t.Fatal(s, n)
	}
	vm.Free(p)
	q := eval(t, vm, "Promise.reject(new Error('unheard'));1")
	vm.Free(q)
	rs := vm.Rejections()
	if len(rs) != 1 || vm.Info(rs[0]).Message != "unheard" {
		t.Fatal(rs)
	}
	vm.Free(rs[0])
}

func TestInspect(t *testing.T) {
	vm := newVM(t)
	for code, want := range map[string]string{
		"({a:1,b:'x',c:[1,2,{d:null}],get e(){throw 1}})": `{ a: 1, b: "x", c: [1, 2, { d: null }], e: [Getter] }`,
		"'plain'": "plain", "function foo(){}": "[Function: foo]", "Symbol('q')": "Symbol(q)", "new Map([[1,{a:1}]])": "Map(1) { 1 => { a: 1 } }", "5n": "5n", "/a+/g": "/a+/g", "new Date(0)": "1970-01-01T00:00:00.000Z",
	} {
		v := eval(t, vm, "("+code+")")
		if got := vm.Inspect(v); got != want {
			t.Errorf("%s: %s", code, got)
		}
		vm.Free(v)
	}
}
