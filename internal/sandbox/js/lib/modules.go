package lib

import (
	_ "embed"
	"slices"
	"strings"
)

// Module is a module that definition code may import by name.
type Module struct {
	Name string
	Code string
	// Uses lists the modules that it needs.
	Uses []string
}

// Modules lists what definition code may import besides its own modules.
var Modules = []Module{
	{Name: "@agentuity/runtime", Code: runtimeModule},
	{Name: "@agentuity/schema", Code: agentuitySchema},
	{Name: "@ai-sdk/anthropic", Code: provider("anthropic", "createAnthropic")},
	{Name: "@ai-sdk/google", Code: provider("google", "createGoogleGenerativeAI")},
	{Name: "@ai-sdk/openai", Code: provider("openai", "createOpenAI")},
	{Name: "@standardagents/builder", Code: Builder},
	{Name: "ai", Code: aiModule},
	{Name: "valibot", Code: valibot},
	{Name: "zod", Code: Zod},
	{Name: "zod/v4", Code: "export * from 'zod';\nexport { default } from 'zod';\n", Uses: []string{"zod"}},
}

var (
	// The modules of handlers (AGT-09): createAgent, and the part of the AI SDK that calls models.

	//go:embed runtime.js
	runtimeModule string
	//go:embed ai.js
	aiModule string
	//go:embed provider.js
	providerModule string

	// Third-party libraries, made by generate from the published packages. The licence of valibot is in
	// valibot.LICENSE; that of @agentuity/schema is the same as this repository's.

	//go:embed valibot.js
	valibot string
	//go:embed agentuity-schema.js
	agentuitySchema string
)

// provider returns a package of the AI SDK that names models. Model objects answer the models that it makes.
func provider(name, create string) string {
	return strings.NewReplacer("$provider", name, "$create", create).Replace(providerModule)
}

// Has reports whether a library has this name.
func Has(name string) bool {
	return slices.ContainsFunc(Modules, func(m Module) bool { return m.Name == name })
}

// Named returns the modules that any of the sources may import, judged by the names in the sources alone.
func Named(sources ...string) []Module {
	wanted := map[string]bool{}
	for _, m := range Modules {
		for _, s := range sources {
			if strings.Contains(s, m.Name) {
				wanted[m.Name] = true
				for _, name := range m.Uses {
					wanted[name] = true
				}
				break
			}
		}
	}
	var out []Module
	for _, m := range Modules {
		if wanted[m.Name] {
			out = append(out, m)
		}
	}
	return out
}
