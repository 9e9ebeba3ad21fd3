package mcptool

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// maxFiles is the largest number of files of one result.
const maxFiles = 32

// result converts what a server returned to what the model reads: texts as they are, everything else as files of the
// thread.
func (t *remoteTool) result(ctx context.Context, callID string, res *mcp.CallToolResult) tool.Result {
	w := &writer{ctx: ctx, tool: t, callID: callID}
	for _, c := range res.Content {
		w.content(c)
	}
	if res.StructuredContent != nil && !res.IsError {
		if err := w.structured(res.StructuredContent); err != "" {
			return tool.Failure(err)
		}
	}
	if res.NeedsInput() {
		return tool.Failure("the MCP server asks a person for input, which is not supported: call the tool with everything that it needs")
	}
	out := tool.Result{Status: tool.StatusSuccess, Content: strings.Join(w.texts, "\n"), Attachments: w.files}
	if res.IsError {
		out.Status = tool.StatusError
		if out.Content == "" {
			out.Content = "the tool failed and did not say why"
		}
	}
	return out
}

// writer collects the parts of a result.
type writer struct {
	ctx    context.Context
	tool   *remoteTool
	callID string
	texts  []string
	files  []store.Attachment
}

func (w *writer) say(format string, args ...any) {
	w.texts = append(w.texts, fmt.Sprintf(format, args...))
}

func (w *writer) content(c mcp.Content) {
	switch c := c.(type) {
	case *mcp.TextContent:
		w.say("%s", c.Text)
	case *mcp.ImageContent:
		w.attach("image", c.MIMEType, c.Data)
	case *mcp.AudioContent:
		w.attach("audio", c.MIMEType, c.Data)
	case *mcp.ResourceLink:
		w.say("[resource %s: %s %s]", bounded(c.Name, 256), bounded(c.URI, 2048), bounded(c.Description, 1024))
	case *mcp.EmbeddedResource:
		switch r := c.Resource; {
		case r == nil:
		case r.Blob != nil:
			w.attach("resource "+bounded(r.URI, 2048), r.MIMEType, r.Blob)
		default:
			w.say("[resource %s]\n%s", bounded(r.URI, 2048), r.Text)
		}
	default:
		w.say("[content of an unknown kind]")
	}
}

func (w *writer) attach(what, mimeType string, data []byte) {
	if len(w.files) == maxFiles {
		w.say("[%s: left out, because there are more than %d files]", what, maxFiles)
		return
	}
	file, err := tool.Attach(w.ctx, w.tool.host.State, w.callID, len(w.files)+1, mimeType, data)
	if err != nil {
		w.say("[%s: it cannot be stored: %v]", what, err)
		return
	}
	w.files = append(w.files, file)
	w.say("[%s: %s, %s, %d bytes]", what, file.Path, file.MimeType, file.Size)
}

// structured adds structured content, unless a text says the same, as servers are supposed to include. It returns what
// is wrong when the content does not fit the schema that the server declares.
func (w *writer) structured(v any) (wrong string) {
	text, err := json.Marshal(v)
	if err != nil {
		return "the MCP server gave structured content that is not JSON"
	}
	if len(w.tool.remote.Output) > 0 {
		schema, err := tool.CompileSchema(w.tool.remote.Output)
		if err == nil {
			if err := schema.Valid(text); err != nil {
				return "the MCP server returned a result that does not fit the schema that it declares: " + w.tool.servers.bounded(w.tool.config, err.Error(), 2048)
			}
		}
	}
	var same any
	_ = json.Unmarshal(text, &same)
	for _, t := range w.texts {
		var said any
		if json.Unmarshal([]byte(t), &said) == nil && reflect.DeepEqual(said, same) {
			return ""
		}
	}
	w.say("%s", text)
	return ""
}
