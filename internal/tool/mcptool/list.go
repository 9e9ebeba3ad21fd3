package mcptool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skein-dev/skein/internal/tool"
)

// Limits of what a server lists.
const (
	maxTools       = 128
	maxPages       = 32
	maxDescription = 4096
	maxSchema      = 64 << 10
	maxName        = 64 // the limit of the providers
)

// Remote is a tool of a server.
type Remote struct {
	Name        string // name that the model calls
	Remote      string // the server's name for it
	Description string
	Parameters  json.RawMessage
	Output      json.RawMessage // JSON Schema of structured results; empty for none
}

// list requests the tools and returns those that can be offered.
func (v *server) list(ctx context.Context, s *session) ([]Remote, error) {
	var out []Remote
	taken := map[string]bool{}
	params := &mcp.ListToolsParams{}
	for range maxPages {
		page, err := s.ListTools(ctx, params)
		if err != nil {
			return nil, err
		}
		for _, t := range page.Tools {
			if t == nil || len(v.config.Tools) > 0 && !slices.Contains(v.config.Tools, t.Name) {
				continue
			}
			r, why := v.remote(t)
			switch {
			case why == "" && taken[r.Name]:
				why = "another tool of the server has the name " + r.Name
			case why == "" && len(out) == maxTools:
				why = "the server has more tools than are offered: choose some with spec.mcp.tools"
			}
			if why != "" {
				v.owner.opts.Log.Info("a tool of an MCP server is left out", "namespace", v.config.Namespace, "tool", v.config.Name, "name", bounded(t.Name, maxName), "reason", why)
				continue
			}
			taken[r.Name] = true
			out = append(out, r)
		}
		if page.NextCursor == "" || len(out) == maxTools {
			break
		}
		params = &mcp.ListToolsParams{Cursor: page.NextCursor}
	}
	return out, nil
}

// remote converts a tool that a server lists, or returns why it cannot be offered.
func (v *server) remote(t *mcp.Tool) (r Remote, why string) {
	if t.Name == "" || len(t.Name) > 256 {
		return r, "its name is empty or too long"
	}
	r = Remote{Name: CallName(v.config.Prefix, t.Name), Remote: t.Name, Description: v.owner.bounded(v.config, t.Description, maxDescription)}
	if r.Parameters, why = schemaOf(t.InputSchema); why != "" {
		return r, "its inputSchema " + why
	}
	if r.Parameters == nil {
		r.Parameters = json.RawMessage(`{"type":"object"}`)
	}
	r.Output, _ = schemaOf(t.OutputSchema) // without a schema, results are not checked
	return r, ""
}

// CallName returns the name with which a model calls a tool of a server. Characters that models do not accept in names
// become "_", and a name that is too long ends in a hash.
func CallName(prefix, name string) string {
	full := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, prefix+name)
	if len(full) <= maxName {
		return full
	}
	sum := sha256.Sum256([]byte(prefix + name))
	return full[:maxName-9] + "_" + hex.EncodeToString(sum[:4])
}

// schemaOf reads the schema of an object. It leaves out expressions that it does not understand, because the server
// checks its arguments itself.
func schemaOf(v any) (text json.RawMessage, why string) {
	if v == nil {
		return nil, ""
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, "is not JSON"
	}
	if len(text) > maxSchema {
		return nil, "is too large"
	}
	var doc map[string]any
	if json.Unmarshal(text, &doc) != nil || doc == nil {
		return nil, "is not a schema of an object"
	}
	if kind, ok := doc["type"]; ok && kind != "object" {
		return nil, "is not a schema of an object"
	}
	doc["type"] = "object"
	if text, err = json.Marshal(doc); err != nil {
		return nil, "is not JSON"
	}
	if _, err := tool.CompileSchema(text); err == nil {
		return text, ""
	}
	loosen(doc)
	if text, err = json.Marshal(doc); err != nil {
		return nil, "is not JSON"
	}
	if _, err := tool.CompileSchema(text); err != nil {
		return nil, "cannot be used: " + bounded(err.Error(), 300)
	}
	return text, ""
}

// loosen removes what dialects of JSON Schema disagree on.
func loosen(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range []string{"pattern", "patternProperties", "format", "$schema", "$id"} {
			switch v[key].(type) {
			case string:
				delete(v, key)
			case map[string]any:
				if key == "patternProperties" {
					delete(v, key)
				}
			}
		}
		for _, inner := range v {
			loosen(inner)
		}
	case []any:
		for _, inner := range v {
			loosen(inner)
		}
	}
}

// bounded returns bounded(text, limit) without the secrets of the server's namespace. It redacts before it cuts,
// because half of a secret would not be found.
func (s *Servers) bounded(config *Server, text string, limit int) string {
	return bounded(s.opts.Redact(config.Namespace, text), limit)
}

// bounded returns a text of a server without control characters, and no longer than a limit.
func bounded(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
