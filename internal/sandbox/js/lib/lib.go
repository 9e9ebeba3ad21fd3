// Package lib holds the JavaScript that definition code uses in its isolate.
package lib

import (
	_ "embed"
	"strings"
)

//go:generate go run ./generate

// Zod is the zod library as one ES module, made by generate from the published package. It contains only the English
// translation. Its licence is in zod.LICENSE.
//
//go:embed zod.js
var Zod string

// Builder is the module "@standardagents/builder": the define functions (TOL-03).
//
//go:embed builder.js
var Builder string

// Definition returns the script that provides state, timers and text codecs to definition code, and that describes and
// invokes what a module declares. Its value is a function that takes the host's side, makes the globals of definition
// code, and returns another function. That one takes what the host says of the isolate, and returns { describe, invoke }.
//
// So all that does not depend on the isolate is done in the first of the two, which an image of an engine has behind it.
func Definition() string {
	return "(function (sys) {\n(" + expression(abortScript) + ")();\nconst http = (" + expression(globalsScript) + ")(sys);\nreturn (" + expression(definitionScript) +
		")(sys, " + expression(stateScript) + ", " + expression(threadScript) + ", http);\n})"
}

// Each of these is one function.
var (
	//go:embed abort.js
	abortScript string
	//go:embed globals.js
	globalsScript string
	//go:embed state.js
	stateScript string
	//go:embed thread.js
	threadScript string
	//go:embed definition.js
	definitionScript string
)

// expression returns a script that is one expression, for use within another.
func expression(script string) string { return strings.TrimSuffix(strings.TrimSpace(script), ";") }

// URL is the script that makes the classes URL and URLSearchParams. It is evaluated when code first names one of
// them. Its value is a function that takes the host's side.
//
//go:embed url.js
var URL string

// HTTP is the script that makes the classes Headers, Request, Response and ReadableStream, and that serves thread
// endpoints (END-01). It is evaluated when code first names one of the classes. Its value is a function that takes
// the host's side.
//
//go:embed http.js
var HTTP string

// Handler is the script that calls the handler of an agent's side (AGT-09). It is evaluated only where there is one.
// Its value is a function that takes the host's side and what definition.js provides for it.
//
//go:embed handler.js
var Handler string

// Schemas is the script that has zod make a schema of each common kind, for images of engines. Its value is a function that takes zod
// and returns a promise.
//
//go:embed schemas.js
var Schemas string

// DefinitionWithParts returns Definition including HTTP and Handler as one function, for engines that compile a function at its first
// call. It finds what the host says of the isolate in the host's side, as statics.
func DefinitionWithParts() string {
	return "(function (sys) {\nsys.httpParts = " + expression(HTTP) + ";\nsys.handlerParts = " + expression(Handler) +
		";\nreturn (" + expression(Definition()) + ")(sys)(sys.statics);\n})"
}
