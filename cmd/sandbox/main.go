// Command sandbox is what runs in a sandbox pod: a supervisor that gives each execution of its thread's code
// to a locked, single-use child of this same program.
package main

import (
	"os"

	"github.com/skein-dev/skein/internal/sandbox/supervisor"
)

func main() {
	if code, ok := supervisor.Dispatch(os.Args); ok {
		os.Exit(code)
	}
	os.Exit(supervisor.Main(os.Args[1:]))
}
