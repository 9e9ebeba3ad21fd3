package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/cmd/kubectl-skein/internal/console"
	"github.com/skein-dev/skein/cmd/kubectl-skein/internal/console/page"
)

// maxPort is the largest port of TCP.
const maxPort = 65535

func newConsole(p *plugin) *cobra.Command {
	var port int
	var open, all bool
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Show threads, conversations, approvals and effects in a browser",
		Long: `Show threads, conversations, approvals and effects in a browser. The command serves a page on this machine until it is interrupted,
and prints its address. The page reads and changes what you may read and change with kubectl, through the same kubeconfig. Nothing is
installed in the cluster.

The address has a token: everyone who has the address can use your rights on this machine while the command runs.`,
		Example: `  # The threads of the namespace
  kubectl skein console

  # Those of all namespaces, on a port that stays the same
  kubectl skein console -A --port=8765`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if port < 0 || port > maxPort {
				return fmt.Errorf("--port=%d: give a number from 0 to %d; 0 means any free port", port, maxPort)
			}
			options, err := p.consoleOptions(all)
			if err != nil {
				return err
			}
			l, err := console.Listen(port)
			if err != nil {
				return err
			}
			server, err := console.New(l, *options)
			if err != nil {
				_ = l.Close()
				return err
			}
			fmt.Fprintln(p.Out, server.Address())
			fmt.Fprintln(p.ErrOut, "Open this address in a browser. Press Ctrl-C to end the console.")
			if !cmd.Flags().Changed("open") {
				open = isTerminal(p.Out) && hasDesktop()
			}
			if open {
				failed := func(err error) { fmt.Fprintf(p.ErrOut, "No browser could be opened: %v\n", err) }
				if err := openBrowser(cmd.Context(), server.Once(), failed); err != nil {
					failed(err)
				}
			}
			if err := server.Serve(cmd.Context(), l); err != nil {
				return err
			}
			return context.Cause(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.IntVar(&port, "port", 0, "The port on this machine; 0 means any free port.")
	f.BoolVar(&open, "open", false, "Open the address in a browser. That is the default on the terminal of a desktop.")
	f.BoolVarP(&all, "all-namespaces", "A", false, "Show the threads of all namespaces first.")
	return cmd
}

// consoleOptions returns what the console uses of this command.
func (p *plugin) consoleOptions(all bool) (*console.Options, error) {
	cfg, ns, err := p.config()
	if err != nil {
		return nil, err
	}
	raw, err := p.flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, err
	}
	current := raw.CurrentContext
	if p.flags.Context != nil && *p.flags.Context != "" {
		current = *p.flags.Context
	}
	return &console.Options{
		Config: cfg, Context: current, Namespace: ns, AllNamespaces: all, Version: buildVersion(), Page: page.Files,
		Thread: threadRow, Effect: effectRow, Role: roleFor, Advice: advice,
		RunEffect: func(ctx context.Context, o console.Object, key string) ([]string, error) {
			return p.in(o.Namespace).runEffect(ctx, o, key)
		},
		SuspendEffect: func(ctx context.Context, o console.Object, suspend bool) (bool, string, error) {
			return p.in(o.Namespace).suspendEffect(ctx, o, suspend)
		},
	}, nil
}

// in returns the plugin for another namespace.
func (p *plugin) in(namespace string) *plugin {
	q := *p
	q.scratch = namespace
	return &q
}

// sameEffect reads the ScheduledEffect that the page shows. Another one that has got its name is an error.
func (p *plugin) sameEffect(ctx context.Context, o console.Object) (client.Client, *skeinv1.ScheduledEffect, error) {
	c, got, err := p.effect(ctx, o.Name)
	if err == nil && got.UID != o.UID {
		err = &console.Error{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
			Err: fmt.Errorf("scheduledeffect/%s was deleted, and another one has its name now: look at it before you do this again", o.Name)}
	}
	return c, got, err
}

// runEffect fires a ScheduledEffect now, and returns a line for each due time.
func (p *plugin) runEffect(ctx context.Context, o console.Object, key string) ([]string, error) {
	options := &askOptions{wait: true, timeout: defaultAskTimeout, key: key}
	if err := options.check(); err != nil {
		return nil, &console.Error{Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest, Err: err}
	}
	if _, _, err := p.sameEffect(ctx, o); err != nil {
		return nil, consoleError(err)
	}
	answer, err := p.answerTo(ctx, o.Name, skeinv1.AnnotationRunAt, runNow()+"/"+key, options)
	if err == nil && answer.Refused != "" {
		err = refusedRequest(o.Name, answer)
	}
	if err != nil {
		return nil, consoleError(err)
	}
	lines := make([]string, len(answer.Results))
	for i := range answer.Results {
		lines[i] = safe(resultText(&answer.Results[i]))
	}
	return lines, nil
}

// suspendEffect suspends or resumes a ScheduledEffect.
func (p *plugin) suspendEffect(ctx context.Context, shown console.Object, suspend bool) (changed bool, message string, err error) {
	c, o, err := p.sameEffect(ctx, shown)
	if err != nil {
		return false, "", consoleError(err)
	}
	if !suspend {
		message = limitOf(o)
	}
	patch := suspension(o, suspend)
	if patch == nil {
		return false, message, nil
	}
	return true, message, consoleError(mergeEffect(ctx, c, o, patch))
}

// consoleError returns an error of a command with the HTTP status code that matches its exit code. It returns other errors as they are: those of the
// API server have a status code already.
func consoleError(err error) error {
	if errors.As(err, new(apierrors.APIStatus)) {
		return err
	}
	switch exitCode(err) {
	case exitRefused:
		return &console.Error{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Err: err}
	case exitEnded:
		return &console.Error{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Err: err}
	case exitTimeout, exitWaits:
		return &console.Error{Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout, Err: err}
	}
	return err
}

// hasDesktop reports whether a browser can be expected to open.
func hasDesktop() bool {
	if os.Getenv("SSH_CONNECTION") != "" || os.Getenv("SSH_TTY") != "" {
		return false // it would open where no person is
	}
	switch runtime.GOOS {
	case "windows", "darwin":
		return true
	}
	return os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != ""
}

// openBrowser opens an address in the browser of the desktop. Other users of the machine can read the address while the program runs that opens it.
// failed is called when that program ends with an error.
func openBrowser(ctx context.Context, address string, failed func(error)) error {
	name, args := "xdg-open", []string{address}
	switch runtime.GOOS {
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", address}
	case "darwin":
		name = "open"
	}
	// The program may be the browser itself, which outlives the command and does not end with its interrupt.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), name, args...)
	inOwnGroup(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		if err := cmd.Wait(); err != nil && ctx.Err() == nil {
			failed(err)
		}
	}()
	return nil
}
