package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
				if err := openBrowser(cmd.Context(), server.Address()); err != nil {
					fmt.Fprintf(p.ErrOut, "No browser could be opened: %v\n", err)
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
		RunEffect: func(ctx context.Context, namespace, name string) ([]string, error) {
			return p.in(namespace).runEffect(ctx, name)
		},
		SuspendEffect: func(ctx context.Context, namespace, name string, suspend bool) (bool, string, error) {
			return p.in(namespace).suspendEffect(ctx, name, suspend)
		},
	}, nil
}

// in returns the plugin for another namespace.
func (p *plugin) in(namespace string) *plugin {
	q := *p
	q.scratch = namespace
	return &q
}

// runEffect fires a ScheduledEffect now, and returns a line for each due time.
func (p *plugin) runEffect(ctx context.Context, name string) ([]string, error) {
	answer, err := p.answerTo(ctx, name, skeinv1.AnnotationRunAt, runNow(), &askOptions{wait: true, timeout: defaultAskTimeout})
	if err == nil && answer.Refused != "" {
		err = refusedRequest(name, answer)
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
func (p *plugin) suspendEffect(ctx context.Context, name string, suspend bool) (changed bool, message string, err error) {
	c, o, err := p.effect(ctx, name)
	if err != nil {
		return false, "", err
	}
	if !suspend {
		message = limitOf(o)
	}
	patch := suspension(o, suspend)
	if patch == nil {
		return false, message, nil
	}
	return true, message, mergeEffect(ctx, c, o, patch)
}

// consoleError gives an error of a command, which has an exit code, one of HTTP. Errors of the server have one already.
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
	switch runtime.GOOS {
	case "windows", "darwin":
		return true
	}
	return os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != ""
}

// openTimeout bounds the program that opens a browser. It ends when the browser has the address.
const openTimeout = 10 * time.Second

// openBrowser opens an address in the browser of the desktop.
func openBrowser(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	name, args := "xdg-open", []string{address}
	switch runtime.GOOS {
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", address}
	case "darwin":
		name = "open"
	}
	cmd := exec.CommandContext(ctx, name, args...)
	if err := cmd.Start(); err != nil {
		cancel()
		return err
	}
	go func() {
		defer cancel()
		_ = cmd.Wait() // the address is printed as well
	}()
	return nil
}
