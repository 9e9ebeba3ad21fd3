package compile

import (
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// RuntimeContext is the property of state with the configuration of the platform team (TOL-04). Only code that names
// it gets it, and such code is not portable.
const RuntimeContext = "_notPackableRuntimeContext"

// RuntimeContextMark is the export that marks a module that names RuntimeContext. Code that reads the property by a
// computed name does not get it, so that no code reads it unnoticed.
const RuntimeContextMark = "$skeinReadsRuntimeContext"

// readsRuntimeContext reports whether code uses RuntimeContext as the name of a property. Comments and texts do not
// count.
func readsRuntimeContext(source string, options api.TransformOptions) bool {
	if !strings.Contains(source, RuntimeContext) {
		return false // a name with escapes counts as computed
	}
	// The compiler reports which properties with this name it would rename.
	options.Sourcemap = api.SourceMapNone
	options.MangleProps = "^" + RuntimeContext + "$"
	options.MangleQuoted = api.MangleQuotedTrue
	options.MangleCache = map[string]any{}
	out := api.Transform(source, options)
	_, found := out.MangleCache[RuntimeContext]
	return found
}
