package compile

import (
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// RuntimeContext is the property of state that holds what the platform team configured (TOL-04). Code that names
// it is given it, and is not portable.
const RuntimeContext = "_notPackableRuntimeContext"

// RuntimeContextMark is the export that tells an isolate that a module names RuntimeContext. Code that reads it by a
// computed name is not given it, so that none reads it unseen.
const RuntimeContextMark = "$skeinReadsRuntimeContext"

// readsRuntimeContext finds out whether code has RuntimeContext as the name of a property: not in comments and texts.
func readsRuntimeContext(source string, options api.TransformOptions) bool {
	if !strings.Contains(source, RuntimeContext) {
		return false // spelled with escapes it is as good as computed
	}
	// The compiler tells by name which properties it would rename.
	options.Sourcemap = api.SourceMapNone
	options.MangleProps = "^" + RuntimeContext + "$"
	options.MangleQuoted = api.MangleQuotedTrue
	options.MangleCache = map[string]any{}
	out := api.Transform(source, options)
	_, found := out.MangleCache[RuntimeContext]
	return found
}
