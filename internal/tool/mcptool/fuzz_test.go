package mcptool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/mcptool"
	"github.com/skein-dev/skein/internal/tool/outbound"
	"github.com/skein-dev/skein/internal/tool/tooltest"
)

// results are seeds: results of calls as servers send them, and wrong ones.
var results = []string{
	`{"content":[{"type":"text","text":"hello"}]}`, `{"content":[],"isError":true}`, `{"content":null}`, `{}`, `null`, `7`,
	`{"content":[{"type":"image","mimeType":"image/png","data":"cG5n"},{"type":"audio","mimeType":"","data":""}],"structuredContent":{"n":1}}`,
	`{"content":[{"type":"resource","resource":{"uri":"x://1","text":"inside"}},{"type":"resource","resource":{"uri":"x://2","mimeType":"../x","blob":"cGRmIQ=="}},{"type":"resource_link","uri":"x://3","name":"l"}]}`,
	`{"content":[{"type":"dance"}]}`, `{"content":[{"type":"resource"}]}`, `{"content":[{"type":"image","data":"%"}]}`, `{"content":[{}],"structuredContent":[1e400]}`, `{"inputRequests":{}}`,
}

// FuzzAnswer answers calls of a tool with any bytes: as JSON, as a stream of events, and as the result in an answer that is well formed otherwise. A call
// has a result that a model can read, and the session, or a new one, is of use afterwards.
func FuzzAnswer(f *testing.F) {
	ctx := context.Background()
	host, closed, err := tooltest.NewHost(ctx, f.TempDir(), nil)
	if err != nil {
		f.Fatal(err)
	}
	private, err := outbound.ParseHosts([]string{"127.0.0.1"})
	if err != nil {
		f.Fatal(err)
	}
	network := outbound.New(outbound.Policy{Private: private})
	servers := mcptool.New(mcptool.Options{Network: network})
	type answer struct {
		form byte
		body []byte
	}
	var next atomic.Pointer[answer]
	inner := streamable(newServer("a"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var call struct {
			ID     json.RawMessage
			Method string
		}
		a := next.Load()
		if a == nil || err != nil || json.Unmarshal(body, &call) != nil || call.Method != "tools/call" {
			r.Body = io.NopCloser(bytes.NewReader(body))
			inner.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", map[byte]string{0: "application/json", 1: "text/event-stream"}[a.form%3%2])
		if a.form%3 == 2 {
			_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":` + string(call.ID) + `,"result":` + string(a.body) + `}`))
			return
		}
		_, _ = w.Write(bytes.ReplaceAll(a.body, []byte("ID"), call.ID))
	}))
	f.Cleanup(func() {
		servers.Close()
		network.Close()
		server.CloseClientConnections()
		server.Close()
		_ = closed()
	})
	c := &mcptool.Server{Namespace: "n", Name: "s", Version: "1", URL: server.URL, Transport: skeinv1.MCPStreamable, Timeout: 300 * time.Millisecond}
	for _, r := range results {
		f.Add(byte(2), []byte(r))
		f.Add(byte(0), []byte(`{"jsonrpc":"2.0","id":ID,"result":`+r+`}`))
		f.Add(byte(1), []byte("event: message\ndata: "+`{"jsonrpc":"2.0","id":ID,"result":`+r+`}`+"\n\n"))
	}
	for _, s := range []string{`{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"no"}}`, `{"jsonrpc":"2.0","id":99,"result":{}}`, `[]`, `[{"jsonrpc":"2.0","id":ID,"result":{}}]`, "", "data: {\n\n",
		`{"jsonrpc":"2.0","id":ID,"method":"sampling/createMessage","params":{}}`, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1e999}}`} {
		f.Add(byte(0), []byte(s))
		f.Add(byte(1), []byte("id: 1\nretry: 1\ndata: "+s+"\n\n"))
	}
	remote := mcptool.Remote{Name: "a", Remote: "a", Parameters: object, Output: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`)}
	t := servers.Tool(c, remote, host)
	f.Fuzz(func(test *testing.T, form byte, body []byte) {
		next.Store(&answer{form, body})
		r := t.Call(ctx, tool.Call{ID: "call_1", Name: "a", Arguments: json.RawMessage(`{}`)})
		if r.Status != tool.StatusSuccess && r.Status != tool.StatusError {
			test.Fatalf("%q has the status %q", body, r.Status)
		}
		if r.Status == tool.StatusError && r.Content == "" || !utf8.ValidString(r.Content) {
			test.Fatalf("%q becomes %+v", body, r)
		}
		next.Store(nil)
		r = t.Call(ctx, tool.Call{ID: "call_2", Name: "a", Arguments: json.RawMessage(`{}`)})
		if r.Status != tool.StatusSuccess {
			test.Fatalf("after %q, the server is of no use: %+v", body, r)
		}
	})
}

// FuzzTools lists any tools. Each that is offered has a name that providers take, and a schema that arguments can be checked with.
func FuzzTools(f *testing.F) {
	for _, s := range []string{
		`{"tools":[{"name":"a","description":"d","inputSchema":{"type":"object"}}]}`, `{"tools":[{"name":"","inputSchema":null}]}`, `{"tools":[null]}`, `{"tools":[{"name":"ä b/c","inputSchema":[]}]}`,
		`{"tools":[{"name":"x","inputSchema":{"type":"object","properties":{"p":{"type":"string","pattern":"^(?!a)b"}}},"outputSchema":{"type":"string"}}]}`,
		`{"tools":[{"name":"x","inputSchema":{"$ref":"#"}},{"name":"y","inputSchema":{"$ref":"file:///etc/passwd"}},{"name":"z","inputSchema":{"type":"object","allOf":[{"$ref":"#/allOf/0"}]}}]}`,
		`{"tools":[{"name":"x","inputSchema":{"type":"object","properties":{"pattern":{"pattern":1}},"patternProperties":{"(":{}},"$defs":{"a":{"$id":"b"}}}}]}`,
	} {
		f.Add([]byte(s))
	}
	servers := mcptool.New(mcptool.Options{})
	f.Cleanup(servers.Close)
	f.Fuzz(func(t *testing.T, data []byte) {
		var page mcp.ListToolsResult
		if json.Unmarshal(data, &page) != nil {
			return
		}
		for _, one := range page.Tools {
			if one == nil {
				continue
			}
			r, why := servers.Remote(&mcptool.Server{Namespace: "n", Name: "s", Prefix: "s_"}, one)
			if why != "" {
				continue
			}
			if r.Name == "" || len(r.Name) > 64 || !utf8.ValidString(r.Description) || len(r.Description) > 5000 {
				t.Fatalf("%q is offered as %+v", data, r)
			}
			schema, err := tool.CompileSchema(r.Parameters)
			if err != nil {
				t.Fatalf("%q is offered with the schema %s: %v", data, r.Parameters, err)
			}
			_ = schema.Valid(json.RawMessage(`{"p":"x"}`)) // of interest is that it returns
		}
	})
}
