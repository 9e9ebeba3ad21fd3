// Command sandbox is the program of a sandbox pod: a supervisor that runs each execution of its thread's code in a
// locked, single-use child of this same program.
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
