// Package compile turns TypeScript and modern JavaScript into ES modules for the engine, and maps positions
// in stacks back to the source as written (COD-05). It is cheap and imports no engine, so controllers
// use it to validate the code of Tools and Effects.
package compile

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"sync/atomic"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/skein-dev/skein/internal/sandbox"
)

// MaxSource is the longest source of one module, in bytes.
const MaxSource = 1 << 20

// tsconfig keeps the compiler to the language alone: whatever a project sets up elsewhere does not exist here.
const tsconfig = `{"compilerOptions":{"target":"esnext","useDefineForClassFields":true,"experimentalDecorators":false,"verbatimModuleSyntax":false}}`

// Compiler is what Compile does, somewhere.
type Compiler func(filename, source string, lang sandbox.Language) (sandbox.Module, *sandbox.Error)

// elsewhere is where Compile compiles, when Delegate said so.
var elsewhere atomic.Pointer[Compiler]

// Delegate makes Compile use c, in a process that may die of what it compiles (see package compiler). nil
// undoes it.
func Delegate(c Compiler) {
	if c == nil {
		elsewhere.Store(nil)
		return
	}
	elsewhere.Store(&c)
}

// Compile compiles one module. The error carries the position of the first mistake, 1-based, and a Stack
// that shows it.
//
// Some short sources take a compiler hours, or more stack than a process may have, which ends it. A long-lived
// process that compiles code of others calls Delegate first.
func Compile(filename, source string, lang sandbox.Language) (sandbox.Module, *sandbox.Error) {
	if filename == "" {
		filename = DefaultFilename(lang)
	}
	if len(source) > MaxSource {
		return sandbox.Module{}, &sandbox.Error{
			Name:    "RangeError",
			Message: fmt.Sprintf("the source has %d bytes: at most %d are compiled", len(source), MaxSource),
			Stack:   filename,
		}
	}
	if c := elsewhere.Load(); c != nil {
		return (*c)(filename, source, lang)
	}
	return Transform(filename, source, lang)
}

// Transform is Compile in this very process.
func Transform(filename, source string, lang sandbox.Language) (sandbox.Module, *sandbox.Error) {
	if filename == "" {
		filename = DefaultFilename(lang)
	}
	loader, ok := loaderOf(filename, lang)
	if !ok {
		return sandbox.Module{}, &sandbox.Error{
			Name:    "TypeError",
			Message: fmt.Sprintf("language %q is not known: use %q or %q", lang, sandbox.TypeScript, sandbox.JavaScript),
		}
	}
	if loader == api.LoaderJSON {
		return JSON(filename, source)
	}
	options := api.TransformOptions{
		Loader:         loader,
		Format:         api.FormatESModule,
		Target:         api.ES2023,
		Supported:      map[string]bool{"using": false, "import-attributes": true, "top-level-await": true},
		Sourcefile:     filename,
		Sourcemap:      api.SourceMapExternal,
		SourcesContent: api.SourcesContentExclude,
		TsconfigRaw:    tsconfig,
		LogLevel:       api.LogLevelSilent,
		LogLimit:       1,
	}
	out := api.Transform(source, options)
	if len(out.Errors) > 0 {
		return sandbox.Module{}, syntaxError(filename, out.Errors[0])
	}
	m := sandbox.Module{Code: string(out.Code), SourceMap: out.Map, Filename: filename}
	if m.ReadsRuntimeContext = readsRuntimeContext(source, options); m.ReadsRuntimeContext {
		m.Code += "export const " + RuntimeContextMark + " = true;\n" // at the end: positions stay
	}
	return m, nil
}

// DefaultFilename is the name of source that came without one.
func DefaultFilename(lang sandbox.Language) string {
	if lang == sandbox.JavaScript {
		return "main.js"
	}
	return "main.ts"
}

func loaderOf(filename string, lang sandbox.Language) (api.Loader, bool) {
	switch lang {
	case "", sandbox.TypeScript, sandbox.JavaScript:
	default:
		return 0, false
	}
	// What the file is called decides where it says something, so that a module written in the other
	// language is read as what it is.
	switch path.Ext(filename) {
	case ".ts", ".mts":
		return api.LoaderTS, true
	case ".tsx":
		return api.LoaderTSX, true
	case ".js", ".mjs":
		return api.LoaderJS, true
	case ".jsx":
		return api.LoaderJSX, true
	case ".json":
		return api.LoaderJSON, true
	}
	if lang == sandbox.JavaScript {
		return api.LoaderJS, true
	}
	return api.LoaderTS, true
}

// JSON makes a module of a JSON text, which its default export holds.
func JSON(filename, source string) (sandbox.Module, *sandbox.Error) {
	var v any
	if err := json.Unmarshal([]byte(source), &v); err != nil {
		return sandbox.Module{}, &sandbox.Error{Name: "SyntaxError", Message: "not JSON: " + err.Error(), Stack: filename}
	}
	return sandbox.Module{Code: "export default " + source, Filename: filename}, nil
}

func syntaxError(filename string, m api.Message) *sandbox.Error {
	e := &sandbox.Error{Name: "SyntaxError", Message: m.Text}
	if m.Location == nil {
		e.Stack = filename
		return e
	}
	e.Line, e.Column = m.Location.Line, m.Location.Column+1
	e.Stack = fmt.Sprintf("%s: %s\n    at %s:%d:%d", e.Name, m.Text, filename, e.Line, e.Column)
	if text := strings.TrimRight(m.Location.LineText, " \t\r"); text != "" && len(text) <= 200 {
		e.Stack += "\n\n" + text
	}
	return e
}

// FirstLine gives the message of a compile error with its position, in one line: "tool.ts:2:11: Expected …".
func FirstLine(filename string, e *sandbox.Error) string {
	if e.Line == 0 {
		return filename + ": " + e.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s", filename, e.Line, e.Column, e.Message)
}
