package inspect

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/js/lib"
)

// Use is the purpose that a module is declared for.
type Use struct {
	// Name is the name in messages, with its article.
	Name string
	// Kind is the kind that the define function of this use makes.
	Kind string
	// Define shows how a module of this use exports its definition.
	Define string
	// Also lists the other kinds that work too.
	Also []string
	// Needs is a module that code of this use must import. Then its default export does not matter.
	Needs string
}

// The uses of definition code.
var (
	Tool      = Use{Name: "a Tool", Kind: "tool", Define: "export default defineTool({ description, args, execute })"}
	Effect    = Use{Name: "an Effect", Kind: "effect", Define: "export default defineEffect({ args, execute })"}
	Hook      = Use{Name: "a hook", Kind: "hook", Define: "export default defineHook({ hook, execute })"}
	Endpoint  = Use{Name: "a ThreadEndpoint", Kind: "endpoint", Define: "export default defineThreadEndpoint(async (request, state, params) => new Response('…'))"}
	Handler   = Use{Name: "a handler", Kind: "handler", Define: "export default createAgent('Name', { handler: async (ctx, input) => … })", Also: []string{"agent"}}
	ThreadIDs = Use{Name: "the ids of a ThreadGateway", Define: "import { getThreadProvider } from '@agentuity/runtime' and getThreadProvider().setThreadIDProvider({ getThreadId: (appState, ctx) => … })", Needs: runtime}
)

// names are the texts for what the define functions make.
var names = map[string]string{
	"tool": "a tool (defineTool)", "effect": "an effect (defineEffect)", "hook": "a hook (defineHook)", "endpoint": "an endpoint (defineThreadEndpoint)",
	"handler": "a handler (createAgent)", "agent": "an agent (defineAgent)", "prompt": "a prompt (definePrompt)", "model": "a model (defineModel)",
}

// Problem is why a module cannot be used.
type Problem struct {
	Message string
	// Near finds the position in the source through its first group. It is nil when there is none.
	Near *regexp.Regexp
}

// Problems returns what keeps a module from being used. It returns nothing for a module without facts.
func (u Use) Problems(f *sandbox.Facts) (list []Problem) {
	if f == nil {
		return nil
	}
	for _, i := range f.Imports {
		list = append(list, importProblems(i)...)
	}
	for _, name := range f.Undefined {
		list = append(list, Problem{undefinedMessage(name), regexp.MustCompile(`(?:^|[^\w$.'"])(` + regexp.QuoteMeta(name) + `)(?:$|[^\w$])`)})
	}
	if p := u.exportProblem(f); p != "" {
		list = append(list, Problem{Message: p})
	}
	return list
}

func importProblems(i sandbox.Import) []Problem {
	near := regexp.MustCompile("(['\"`]" + regexp.QuoteMeta(i.Specifier) + "['\"`])")
	if !i.Unknown {
		var list []Problem
		for _, name := range i.Missing {
			what := fmt.Sprintf("%s exports nothing named %s", i.Specifier, name)
			if name == "default" {
				what = fmt.Sprintf("%s has no default export: import what you need by name, in braces", i.Specifier)
			}
			list = append(list, Problem{what, near})
		}
		return list
	}
	bundle := "bundle it into the code first, for example with: npx esbuild FILE --bundle --format=esm --packages=bundle --external:@standardagents/builder --external:zod"
	switch {
	case strings.HasPrefix(i.Specifier, "."), strings.HasPrefix(i.Specifier, "/"):
		return []Problem{{fmt.Sprintf("%s cannot be imported: a definition is one module without other files beside it; %s", i.Specifier, bundle), near}}
	case NodeModule(i.Specifier):
		return []Problem{{NoNode(i.Specifier), near}}
	case strings.Contains(i.Specifier, "://"):
		return []Problem{{fmt.Sprintf("%s cannot be imported: sandboxes fetch nothing; %s", i.Specifier, bundle), near}}
	}
	return []Problem{{fmt.Sprintf("%s is not available in sandboxes, which have %s; %s", i.Specifier, available(), bundle), near}}
}

// NodeModule reports whether a specifier names a module of Node.js.
func NodeModule(specifier string) bool {
	return strings.HasPrefix(specifier, "node:") || slices.Contains(nodeModules, strings.SplitN(specifier, "/", 2)[0])
}

// NoNode returns the message about a module of Node.js.
func NoNode(specifier string) string {
	return specifier + " is not available in sandboxes, which have no Node.js: files, values and variables of the thread are in state"
}

// available lists the modules of the sandboxes.
func available() string {
	var list []string
	for _, m := range lib.Modules {
		list = append(list, m.Name)
	}
	return strings.Join(list, ", ")
}

// nodeModules are the modules of Node.js that people import without "node:".
var nodeModules = strings.Fields("assert async_hooks buffer child_process cluster console crypto dgram dns events fs http http2 https module net os path perf_hooks process querystring readline stream string_decoder timers tls tty url util v8 vm worker_threads zlib")

// suggestions maps names to the modules that they most likely come from.
var suggestions = func() map[string]string {
	out := map[string]string{"z": "zod", "v": "valibot", "s": "@agentuity/schema"}
	for from := range defines {
		out[from.name] = from.specifier
	}
	for _, name := range []string{"generateText", "generateObject", "streamText"} {
		out[name] = "ai"
	}
	return out
}()

func undefinedMessage(name string) string {
	switch from := suggestions[name]; {
	case name == "v":
		return "v is not defined: add import * as v from 'valibot'"
	case from != "":
		return fmt.Sprintf("%s is not defined: add import { %s } from '%s'", name, name, from)
	case slices.Contains([]string{"process", "require", "module", "exports", "Buffer", "fetch", "window", "document", "Deno", "Bun", "__dirname", "__filename"}, name):
		return fmt.Sprintf("%s is not available in sandboxes: code reaches the world through state alone", name)
	}
	return fmt.Sprintf("%s is not defined: declare it or import it", name)
}

func (u Use) exportProblem(f *sandbox.Facts) string {
	e := f.Default
	if u.Needs != "" {
		if slices.ContainsFunc(f.Imports, func(i sandbox.Import) bool { return i.Specifier == u.Needs }) {
			return ""
		}
		return fmt.Sprintf("the code does not set %s: add %s", u.Name, u.Define)
	}
	switch {
	case e.Kind == sandbox.ExportNone:
		return "the module has no default export: add " + u.Define
	case e.Kind == sandbox.ExportValue:
		return "the default export is neither a function nor a definition: " + u.Define
	case e.Kind == sandbox.ExportUnknown, e.Kind == sandbox.ExportFunction:
		return ""
	case e.Kind == sandbox.ExportObject && !e.Incomplete:
		return ""
	case e.Kind == sandbox.ExportObject:
		return "the default export has no function to call: " + u.Define
	case e.Kind != u.Kind && !slices.Contains(u.Also, e.Kind):
		return fmt.Sprintf("the default export is %s, but this is the code of %s: %s", names[e.Kind], u.Name, u.Define)
	case e.Incomplete:
		return "the definition has no function to call: " + u.Define
	}
	return ""
}
