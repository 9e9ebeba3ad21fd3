package codeexec

import (
	"strings"

	"github.com/skein-dev/skein/internal/engine/definition"
)

// HookFolder holds the modules of hooks in the isolate: for each hook the module that calls it, and the hook's own
// module with the suffix .source.
const HookFolder = "hooks/"

// sourceKinds are the kinds of code by the folders of their modules.
var sourceKinds = map[string]string{"tools": "tool", "effects": "effect", "endpoints": "endpoint", "sides": "handler"}

// SourceOf returns the name of a module for people, such as tool/search. It returns "" for Skein's own modules.
func SourceOf(module string) string {
	folder, name, ok := strings.Cut(module, "/")
	if !ok {
		return ""
	}
	if folder+"/" == HookFolder {
		return "hook/" + strings.TrimPrefix(name, definition.SideB+"/")
	}
	if kind := sourceKinds[folder]; kind != "" {
		return kind + "/" + name
	}
	return ""
}
