// Package types holds the TypeScript declarations of what definition code uses in a sandbox (TOL-03). It is separate
// from the code that it describes, so that the command that prints the declarations does not contain that code.
package types

import _ "embed"

// Builder declares the module "@standardagents/builder", including ThreadState. It refers to the types of zod.
//
//go:embed builder.d.ts
var Builder string

// Handlers declares what handlers of agents use (AGT-09). It refers to Builder.
//
//go:embed handlers.d.ts
var Handlers string

// Globals declares the globals of the isolate, for projects without TypeScript's "dom" library.
//
//go:embed globals.d.ts
var Globals string
