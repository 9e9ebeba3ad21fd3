// Command sandbox-child is the program of children whose code comes compiled to them in a sandbox. Command sandbox can do the same, but has a compiler
// and a server besides, with which each child would take half as long again to start. It belongs beside the program sandbox, of the same build.
package main

import (
	"fmt"
	"os"

	"github.com/skein-dev/skein/internal/sandbox/js"
)

func main() {
	if len(os.Args) < 2 || os.Args[1] != js.ChildArg {
		fmt.Fprintln(os.Stderr, "sandbox-child: the program sandbox starts this one: there is nothing to run by hand")
		os.Exit(2)
	}
	os.Exit(js.ChildMain(os.Args[2:], nil))
}
