// Package lib holds the JavaScript that definition code finds in its isolate.
package lib

import (
	_ "embed"
	"strings"
)

//go:generate go run ./generate

// Zod is the zod library as one ES module, made by generate from the published package. Of its
// translations only English is left. Its licence is in zod.LICENSE.
//
//go:embed zod.js
var Zod string

// Builder is the module "@standardagents/builder": the define functions (TOL-03).
//
//go:embed builder.js
var Builder string

// Definition is the script that gives definition code its state, timers and text codecs, and that describes
// and invokes what a module declares. Its value is a function that takes the host's side.
//
// It is made of three files: two that build on nothing, and the third that is given what they make.
var Definition = "(function (sys) {\n(" + expression(abortScript) + ")();\nreturn (" + expression(definitionScript) + ")(sys, " + expression(threadScript) + ");\n})"

// Each is one function.
var (
	//go:embed abort.js
	abortScript string
	//go:embed thread.js
	threadScript string
	//go:embed definition.js
	definitionScript string
)

// expression is a script that is one expression, for use within another.
func expression(script string) string { return strings.TrimSuffix(strings.TrimSpace(script), ";") }

// URL is the script that makes the classes URL and URLSearchParams, evaluated when code first names one. Its
// value is a function that takes the host's side.
//
//go:embed url.js
var URL string

// HTTP is the script that makes the classes Headers, Request, Response and ReadableStream, evaluated when code first
// names one, and that serves thread endpoints (END-01). Its value is a function that takes the host's side.
//
//go:embed http.js
var HTTP string

// Handler is the script that calls the handler of an agent's side (AGT-09), evaluated where there is one. Its
// value is a function that takes the host's side and what definition.js has for it.
//
//go:embed handler.js
var Handler string

// Whole is Definition with HTTP and Handler inside, for engines that compile a function when it is called first.
var Whole = "(function (sys) {\nsys.httpParts = " + expression(HTTP) + ";\nsys.handlerParts = " + expression(Handler) +
	";\nreturn (" + expression(Definition) + ")(sys);\n})"
