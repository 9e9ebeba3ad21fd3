// Package types holds the TypeScript declarations of what definition code finds in a sandbox (TOL-03). They are
// apart from the code that they describe, so that the command that prints them does not carry that.
package types

import _ "embed"

// Builder declares the module "@standardagents/builder", ThreadState among it. It refers to the types of zod.
//
//go:embed builder.d.ts
var Builder string

// Handlers declares what handlers of agents are written with (AGT-09). It refers to Builder.
//
//go:embed handlers.d.ts
var Handlers string

// Globals declares the globals of the isolate, for projects without TypeScript's "dom" library.
//
//go:embed globals.d.ts
var Globals string
