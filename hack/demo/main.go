// Command demo demonstrates Skein from beginning to end, as a user would use it: it prints each command and runs it.
// It starts its own cluster, installs Skein, lets an agent compute figures from a file of orders, lets a subagent
// check them, gets a reminder from a scheduled effect, and deletes the whole tree.
//
// Whatever goes wrong, and whenever it is interrupted, it removes everything that it started. When it succeeds, the
// cluster stays for you to look around; `make demo-down` removes it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	down := flag.Bool("down", false, "remove everything that the demo started, also after a crash of it")
	flag.Parse()
	os.Exit(run(*down))
}

func run(down bool) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	d, err := newDemo()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 2
	}
	if down {
		if err := d.down(); err != nil {
			fmt.Fprintln(os.Stderr, "demo:", err)
			return 1
		}
		return 0
	}
	began := time.Now()
	if err = d.build(ctx); err == nil {
		began = time.Now()
		err = d.play(ctx)
	}
	if err == nil {
		d.say("The demo is over after %s. The cluster is still there:", seconds(time.Since(began)))
		fmt.Print(d.afterwards())
		fmt.Println("  make demo-down     # removes it")
		return 0
	}
	if ctx.Err() != nil {
		d.say("Interrupted. Removing everything that the demo started … What is built already is kept.")
	} else {
		fmt.Fprintln(os.Stderr, "\nThe demo failed:", err)
		d.explain()
		d.say("Removing everything that the demo started …")
	}
	if downErr := d.down(); downErr != nil {
		fmt.Fprintln(os.Stderr, "demo: could not remove everything:", errors.Join(downErr, errors.New("run `make demo-down` again")))
	}
	if ctx.Err() != nil {
		return 130
	}
	return 1
}

// afterwards returns commands with which a person looks around in the cluster. They need nothing of this machine: the first one
// puts the cluster's kubectl and the plugin into PATH.
func (d *demo) afterwards() string {
	return fmt.Sprintf("  export KUBECONFIG=%[1]s PATH=%[2]s:$PATH\n  kubectl skein list -n %[3]s\n  kubectl skein chat -n %[3]s --agent analyst\n  kubectl skein console -n %[3]s\n",
		quote([]string{d.kubeconfig}), quote([]string{filepath.Join(d.root, "bin") + ":" + d.kubernetes}), namespace)
}

// play runs the steps of the demo.
func (d *demo) play(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		d.startCluster,
		d.installSkein,
		d.declareAgents,
		d.handOverOrders,
		d.ask,
		d.showObjects,
		d.checkAnswer,
		d.awaitReminder,
		d.deleteTree,
	} {
		if err := step(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}
