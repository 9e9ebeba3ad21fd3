package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
)

// plugin holds what all commands share.
type plugin struct {
	genericiooptions.IOStreams
	flags *genericclioptions.ConfigFlags
	style style
	// scratch is the namespace that kubectl skein dev has made, or that the console's page shows; it comes before that of the flags.
	scratch string
	// onlyNames is set by --output=name of a command that changes something.
	onlyNames bool
}

// run executes the command line and returns the exit code.
func run(ctx context.Context, streams genericiooptions.IOStreams, args []string) int {
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	out := &checkedOutput{to: streams.Out, end: end}
	streams.Out = out
	cmd := newRoot(streams)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(running)
	if failed := out.failed(); failed != nil && ctx.Err() == nil && !errors.As(err, new(*codedError)) {
		err = fmt.Errorf("write the output: %w", failed)
	}
	if err == nil {
		return 0
	}
	if ctx.Err() != nil && !errors.As(err, new(*ownInterruptsError)) {
		return exitInterrupted
	}
	printError(streams.ErrOut, err)
	return exitCode(err)
}

func newRoot(streams genericiooptions.IOStreams) *cobra.Command {
	p := &plugin{IOStreams: streams, flags: genericclioptions.NewConfigFlags(true), style: styleOf(streams.Out)}
	cmd := &cobra.Command{
		Use:   "kubectl-skein",
		Short: "Talk to agent threads and see what happens in them",
		Long: `Talk to agent threads and see what happens in them.

THREAD is the name of a Thread object or any form of its id: the UUID, T-<uuid> or thrd_<32 hex digits>.
Reading a conversation and reading the Thread object are separate rights. If the server refuses a command because you lack a
right, the command names the ClusterRole that has it.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl skein"},
	}
	cmd.SetIn(streams.In)
	cmd.SetOut(streams.Out)
	cmd.SetErr(streams.ErrOut)
	p.flags.AddFlags(cmd.PersistentFlags())
	cmd.AddCommand(
		newChat(p), newCreate(p), newList(p), newShow(p), newSend(p), newMessages(p), newWatch(p), newObserve(p), newLogs(p), newTree(p), newMap(p), newConsole(p), newHandoff(p), newCompact(p),
		newFiles(p), newKV(p), newState(p), newCode(p), newEnv(p), newProvide(p), newHistory(p), newFork(p), newArchive(p), newUnarchive(p),
		newRuns(p), newCancel(p), newRerun(p), newApprovals(p), newApprove(p), newRefuse(p),
		newStop(p), newContinue(p), newDestroy(p), newTerminate(p), newRetained(p), newPurge(p),
		newSearch(p), newMemory(p), newUsage(p), newQuota(p), newExport(p), newImport(p), newBackup(p), newRestore(p), newAdopt(p),
		newTool(p), newSkill(p), newEndpoint(p), newEffect(p), newNotify(p), newStatus(p), newEmit(p), newTypes(p), newCheck(p), newVersion(p), newWebhook(p), newBuild(p), newDev(p),
	)
	p.naming(cmd)
	p.complete(cmd)
	strict(cmd)
	return cmd
}

// config returns the cluster's address and credentials, and the namespace, from the flags and the kubeconfig. While a command has a
// scratch namespace of its own, it returns that one.
func (p *plugin) config() (*rest.Config, string, error) {
	cfg, err := p.restConfig()
	if err != nil {
		return nil, "", err
	}
	if p.scratch != "" {
		return cfg, p.scratch, nil
	}
	ns, _, err := p.flags.ToRawKubeConfigLoader().Namespace()
	return cfg, ns, err
}

// restConfig returns the cluster's address and credentials.
func (p *plugin) restConfig() (*rest.Config, error) {
	cfg, err := p.flags.ToRESTConfig()
	if err == nil && cfg.Timeout < 0 {
		return nil, fmt.Errorf("--request-timeout=%s: give a duration above 0 such as 30s, or 0 for no limit", cfg.Timeout)
	}
	return cfg, err
}

// thread returns a client of the runtime API for one thread.
func (p *plugin) thread(name string) (*runtimeclient.Thread, error) {
	cfg, ns, err := p.config()
	if err != nil {
		return nil, err
	}
	c, err := runtimeclient.New(cfg)
	if err != nil {
		return nil, err
	}
	return c.Thread(ns, name), nil
}

// printError prints an error in the form that kubectl uses, with what the command has to say besides the server's message.
func printError(w io.Writer, err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		fmt.Fprintf(w, "error: %s\n", safe(err.Error()))
		return
	}
	s := status.Status()
	if s.Reason == metav1.StatusReasonUnknown {
		fmt.Fprintf(w, "Error from server: %s\n", safe(err.Error()))
		return
	}
	fmt.Fprintf(w, "Error from server (%s): %s\n", safe(string(s.Reason)), safe(err.Error()))
	if text := advice(s); text != "" {
		fmt.Fprintln(w, text)
	}
}

// upTo is cobra.RangeArgs with an error that says what is missing.
func upTo(needed int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return exactly(names[:min(max(len(args), needed), len(names))]...)(cmd, args)
	}
}

// exactly is cobra.ExactArgs with an error that says what is missing.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		if len(args) < len(names) {
			return fmt.Errorf("%s is missing; usage: %s", names[len(args)], cmd.UseLine())
		}
		return fmt.Errorf("%q is one argument too many (quote a text with spaces); usage: %s", args[len(names)], cmd.UseLine())
	}
}
