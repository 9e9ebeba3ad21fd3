// Command manager is Skein's one program in a cluster: controllers, engine and runtime API.
// Where sandboxes are local processes, it is also the program of those.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/pflag"
	// The image is empty: without these no model provider's certificate could be verified.
	_ "golang.org/x/crypto/x509roots/fallback"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/skein-dev/skein/cmd/manager/app"
	"github.com/skein-dev/skein/internal/sandbox/supervisor"
)

// memoryShare is the share of the pod's memory limit that is the limit of the Go runtime.
const memoryShare = 0.85

func main() {
	// A local sandbox, or a child of one, is this program with another first argument.
	if code, ok := supervisor.Dispatch(os.Args); ok {
		os.Exit(code)
	}
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	o := app.Defaults()
	flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	o.Flags(flags)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return 0
		}
		return fail(err)
	}
	if flags.NArg() > 0 {
		return fail(fmt.Errorf("unexpected argument %q: everything is set by flags, see --help", flags.Arg(0)))
	}
	// Near the memory limit of its pod the program collects garbage more often instead of being killed. GOMEMLIMIT
	// overrides it, and without a limit nothing changes. What lies outside the Go heap has the remaining share.
	if _, err := memlimit.SetGoMemLimitWithOpts(memlimit.WithRatio(memoryShare), memlimit.WithProvider(memlimit.FromCgroup)); err != nil &&
		!errors.Is(err, memlimit.ErrNoLimit) && !errors.Is(err, memlimit.ErrNoCgroup) && !errors.Is(err, memlimit.ErrCgroupsNotSupported) {
		fmt.Fprintln(os.Stderr, "manager: the memory limit of the pod is unknown:", err)
	}
	ctx := ctrl.SetupSignalHandler()
	if err := app.Run(ctx, o); err != nil && !errors.Is(err, context.Canceled) {
		return fail(err)
	}
	return 0
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "manager:", err)
	return 1
}
