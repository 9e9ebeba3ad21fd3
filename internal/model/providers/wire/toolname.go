package wire

import (
	"regexp"
	"slices"

	"github.com/skein-dev/skein/internal/model"
)

// maxToolName is the longest name of a tool that all providers accept.
const maxToolName = 64

var notInToolName = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// ToolName returns the name of an earlier call as providers accept it, whatever the model wrote. One call with another name would make
// every later request of the conversation invalid. The tools that the request offers keep their names.
func ToolName(name string, offered []model.Tool) string {
	if slices.ContainsFunc(offered, func(t model.Tool) bool { return t.Name == name }) {
		return name
	}
	name = notInToolName.ReplaceAllString(name, "_")
	if name == "" {
		return "unknown"
	}
	return name[:min(len(name), maxToolName)]
}
