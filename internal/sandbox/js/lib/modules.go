package lib

import (
	_ "embed"
	"slices"
	"strings"
)

// Module is a module that definition code may import by name.
type Module struct {
	Name string
	// Code returns the source. It is a function, so that a program need not make the sources that it does not use: most
	// children have the modules from elsewhere.
	Code func() string
	// Uses lists the modules that it needs.
	Uses []string
}

// Modules lists what definition code may import besides its own modules.
var Modules = []Module{
	{Name: "@agentuity/runtime", Code: func() string { return runtimeModule }},
	{Name: "@agentuity/schema", Code: func() string { return agentuitySchema }},
	{Name: "@ai-sdk/anthropic", Code: func() string { return provider("anthropic", "createAnthropic") }},
	{Name: "@ai-sdk/google", Code: func() string { return provider("google", "createGoogleGenerativeAI") }},
	{Name: "@ai-sdk/openai", Code: func() string { return provider("openai", "createOpenAI") }},
	{Name: "@standardagents/builder", Code: func() string { return Builder }},
	{Name: "ai", Code: func() string { return aiModule }},
	{Name: "valibot", Code: func() string { return valibot }},
	{Name: "zod", Code: func() string { return Zod }},
	{Name: "zod/v4", Code: func() string { return "export * from 'zod';\nexport { default } from 'zod';\n" }, Uses: []string{"zod"}},
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
