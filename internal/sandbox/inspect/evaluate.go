package inspect

import (
	"strings"

	"github.com/tdewolff/parse/v2/js"
)

// evaluate follows what the module always does when it is loaded, in order. It enters no function and nothing that
// depends on a condition.
func (m *module) evaluate(list []js.IStmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *js.ExprStmt:
			m.reads(s.Value)
		case *js.VarDecl:
			m.reads(s)
		case *js.ClassDecl:
			m.reads(s)
		case *js.ExportStmt:
			m.reads(s.Decl)
		case *js.IfStmt:
			m.reads(s.Cond)
		case *js.BlockStmt:
			m.evaluate(s.List)
		case *js.ThrowStmt:
			m.reads(s.Value)
			return
		}
	}
}

// reads records the undeclared variables that evaluating x certainly reads.
func (m *module) reads(x js.IExpr) {
	switch x := x.(type) {
	case *js.Var:
		m.undeclared(x)
	case *js.VarDecl:
		for _, item := range x.List {
			m.reads(item.Default)
		}
	case *js.ClassDecl:
		m.reads(x.Extends)
	case *js.CallExpr:
		m.reads(x.X)
		if !optional(x) {
			m.readsOfArgs(&x.Args)
		}
	case *js.NewExpr:
		m.reads(x.X)
		m.readsOfArgs(x.Args)
	case *js.DotExpr:
		m.reads(x.X)
	case *js.IndexExpr:
		m.reads(x.X)
		if !optional(x) {
			m.reads(x.Y)
		}
	case *js.GroupExpr:
		m.reads(x.X)
	case *js.CommaExpr:
		for _, item := range x.List {
			m.reads(item)
		}
	case *js.ArrayExpr:
		for _, item := range x.List {
			m.reads(item.Value)
		}
	case *js.ObjectExpr:
		for _, p := range x.List {
			if p.Name != nil && p.Name.IsComputed() {
				m.reads(p.Name.Computed)
			}
			m.reads(p.Value)
		}
	case *js.TemplateExpr:
		m.reads(x.Tag)
		for _, p := range x.List {
			m.reads(p.Expr)
		}
	case *js.CondExpr:
		m.reads(x.Cond)
	case *js.UnaryExpr:
		if x.Op != js.TypeofToken && x.Op != js.DeleteToken {
			m.reads(x.X)
		}
	case *js.BinaryExpr:
		m.readBinary(x)
	}
}

func (m *module) readBinary(x *js.BinaryExpr) {
	switch {
	case x.Op == js.AndToken, x.Op == js.OrToken, x.Op == js.NullishToken:
		m.reads(x.X)
	case x.Op == js.EqToken:
		if _, plain := x.X.(*js.Var); !plain {
			switch x.X.(type) {
			case *js.DotExpr, *js.IndexExpr:
				m.reads(x.X)
			}
		}
		m.reads(x.Y)
	case assigns(x.Op):
	default:
		m.reads(x.X)
		m.reads(x.Y)
	}
}

// readsOfArgs is reads for each argument of a call. args may be nil.
func (m *module) readsOfArgs(args *js.Args) {
	if args == nil {
		return
	}
	for _, a := range args.List {
		m.reads(a.Value)
	}
}

// optional reports whether a ?. within an expression may end its evaluation early.
func optional(x js.IExpr) bool {
	for {
		switch e := x.(type) {
		case *js.CallExpr:
			if e.Optional {
				return true
			}
			x = e.X
		case *js.IndexExpr:
			if e.Optional {
				return true
			}
			x = e.X
		case *js.DotExpr:
			if e.Optional {
				return true
			}
			x = e.X
		default:
			return false
		}
	}
}

// undeclared records the name of a variable that nothing declares, once.
func (m *module) undeclared(v *js.Var) {
	for v.Link != nil {
		v = v.Link
	}
	name := string(v.Data)
	if v.Decl != js.NoDecl || globals[name] || m.undefined[name] {
		return
	}
	if _, ok := m.imports[name]; ok {
		return
	}
	m.undefined[name] = true
	m.order = append(m.order, name)
}

// dynamic reports whether the code may define globals in a way that cannot be seen.
func (m *module) dynamic(ast *js.AST) bool {
	found := false
	js.Walk(named(func(name string) {
		found = found || name == "globalThis" || name == "eval" || name == "Function"
	}), ast)
	return found
}

// globals are the names that exist in a sandbox of either engine, including those of the language.
var globals = func() map[string]bool {
	set := map[string]bool{}
	for _, name := range strings.Fields(`
		undefined NaN Infinity globalThis arguments this super eval import
		Object Function Boolean Symbol Error AggregateError EvalError RangeError ReferenceError SyntaxError TypeError URIError
		InternalError SuppressedError Number BigInt Math Date String RegExp Array Int8Array Uint8Array Uint8ClampedArray
		Int16Array Uint16Array Int32Array Uint32Array BigInt64Array BigUint64Array Float16Array Float32Array Float64Array Map Set
		WeakMap WeakSet WeakRef FinalizationRegistry ArrayBuffer SharedArrayBuffer DataView Atomics JSON Promise Proxy Reflect
		Iterator AsyncIterator Generator GeneratorFunction AsyncFunction DisposableStack AsyncDisposableStack Intl Temporal
		WebAssembly isFinite isNaN parseFloat parseInt decodeURI decodeURIComponent encodeURI encodeURIComponent escape unescape
		console TextEncoder TextDecoder URL URLSearchParams setTimeout clearTimeout setInterval clearInterval queueMicrotask
		structuredClone atob btoa crypto performance AbortController AbortSignal DOMException Event EventTarget
		Headers Request Response ReadableStream
	`) {
		set[name] = true
	}
	return set
}()
