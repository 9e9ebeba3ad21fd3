// Package compile compiles TypeScript and modern JavaScript to ES modules for the engine. It is cheap and imports no engine, so that
// controllers can use it to validate the code of Tools and Effects.
package compile

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/skein-dev/skein/internal/sandbox"
)

// MaxSource is the longest source of one module, in bytes. MaxCode is the longest code that may become of one. The compiler indents each level of
// nesting, so that some thousand levels become many times their source.
const (
	MaxSource = 1 << 20
	MaxCode   = 4 * MaxSource
)

// tsconfig limits the compiler to the language itself: settings of a project elsewhere do not apply.
const tsconfig = `{"compilerOptions":{"target":"esnext","useDefineForClassFields":true,"experimentalDecorators":false,"verbatimModuleSyntax":false}}`

// Compile compiles one module. The error has the 1-based position of the first mistake, and a Stack that shows it.
//
// Some short sources keep a compiler busy for hours, or need more stack than a process may have, which ends the
// process. A long-lived process that compiles the code of others uses the Compiler of package compiler instead.
func Compile(filename, source string, lang sandbox.Language) (sandbox.Module, *sandbox.Error) {
	if filename == "" {
		filename = DefaultFilename(lang)
	}
	if err := TooLong(filename, source); err != nil {
		return sandbox.Module{}, err
	}
	return Transform(filename, source, lang)
}

// TooLong returns an error when a source is longer than MaxSource.
func TooLong(filename, source string) *sandbox.Error {
	if len(source) <= MaxSource {
		return nil
	}
	return &sandbox.Error{
		Name:    "RangeError",
		Message: fmt.Sprintf("the source has %d bytes: at most %d are compiled", len(source), MaxSource),
		Stack:   filename,
	}
}

// Transform is Compile for a source of any length.
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
	// Loops with for await are compiled to others, because quickjs leaves one without waiting for the iterator to close.
	options := api.TransformOptions{
		Loader:         loader,
		Format:         api.FormatESModule,
		Target:         api.ES2023,
		Supported:      map[string]bool{"using": false, "for-await": false, "import-attributes": true, "top-level-await": true},
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
	if len(out.Code) > MaxCode {
		return sandbox.Module{}, &sandbox.Error{
			Name:    "RangeError",
			Message: fmt.Sprintf("the source becomes %d bytes when it is compiled, of which at most %d are kept: make it shorter, or nest it less", len(out.Code), MaxCode),
			Stack:   filename,
		}
	}
	if returns.Match(out.Code) {
		// As a module the source is refused, with the position of the return.
		if refused := api.Transform(source+"\nexport {}", options); len(refused.Errors) > 0 {
			e := syntaxError(filename, refused.Errors[0])
			e.Message += ": export a function that returns it, as in: export default () => value"
			return sandbox.Module{}, e
		}
	}
	m := sandbox.Module{Code: string(out.Code), SourceMap: out.Map, Filename: filename}
	if m.ReadsRuntimeContext = readsRuntimeContext(source, options); m.ReadsRuntimeContext {
		m.Code += "export const " + RuntimeContextMark + " = true;\n" // at the end, so that positions stay the same
	}
	return m, nil
}

// returns matches what becomes of a source that returns outside of a function: the compiler takes it for a CommonJS module, which sets no
// exports here. Its value would be lost silently.
var returns = regexp.MustCompile(`(?m)^var require_\w+ = __commonJS\(\{\n\s+.*\(\) \{$`)

// DefaultFilename returns the file name for a source without one.
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
	// The extension of the file name decides, if there is a known one, so that a module in the other language is
	// compiled correctly.
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

// JSON returns a module whose default export is the value of a JSON text.
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

// FirstLine returns the message of a compile error with its position, on one line: "tool.ts:2:11: Expected …".
func FirstLine(filename string, e *sandbox.Error) string {
	if e.Line == 0 {
		return filename + ": " + e.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s", filename, e.Line, e.Column, e.Message)
}
