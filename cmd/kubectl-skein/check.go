package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// Levels of findings.
const (
	levelOK      = "ok"
	levelWarning = "warning"
	levelError   = "error"
)

// finding is what one check found.
type finding struct {
	Check   string `json:"check"`
	Level   string `json:"level"`
	Message string `json:"message"`
	// Remedy says what to do about a warning or an error.
	Remedy string `json:"remedy,omitempty"`
}

// checker holds what the checks share. Each check adds at least one finding.
type checker struct {
	client    client.Client
	discovery discovery.DiscoveryInterface
	system    string // the namespace of the manager
	now       time.Time
	add       func(finding)
}

// check is one check. name is what its findings say.
type check struct {
	name string
	run  func(ctx context.Context, c *checker, say say) error
}

// say adds a finding of one check.
type say func(level, remedy, format string, args ...any)

func newCheck(p *plugin) *cobra.Command {
	var pre bool
	var output string
	system := "skein-system"
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check an installation, or with --pre whether a cluster can take one",
		Long: `Check an installation: the definitions, the manager and its version, its leader, the runtime API, the certificates, the policies, the
sandbox pools, and the objects that are not ready. With --pre the command checks whether a cluster can run Skein and whether you have the
rights to install it.

The command changes nothing. It exits with 0 when no check found an error; warnings do not count. A check of what you may not read is a warning.`,
		Example: `  # Before an installation
  kubectl skein check --pre

  # Afterwards
  kubectl skein check`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			all := installed
			if pre {
				all = before
			}
			return p.check(cmd.Context(), all, system, output)
		},
	}
	cmd.Flags().BoolVar(&pre, "pre", false, "Check the cluster before an installation.")
	cmd.Flags().StringVar(&system, "system-namespace", system, "The namespace of the manager.")
	cmd.Flags().StringVarP(&output, "output", "o", "", "Output format: json or yaml.")
	return cmd
}

func (p *plugin) check(ctx context.Context, all []check, system, output string) error {
	c, err := p.newChecker(system)
	if err != nil {
		return err
	}
	var found []finding
	c.add = func(f finding) {
		found = append(found, f)
		if output == "" {
			p.printFinding(f)
		}
	}
	for _, one := range all {
		one.perform(ctx, c)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if output != "" {
		if err := encode(p.Out, output, map[string]any{"findings": found}); err != nil {
			return err
		}
	}
	failed := 0
	for _, f := range found {
		if f.Level == levelError {
			failed++
		}
	}
	switch failed {
	case 0:
		return nil
	case 1:
		return errors.New("1 check failed")
	}
	return fmt.Errorf("%d checks failed", failed)
}

func (p *plugin) newChecker(system string) (*checker, error) {
	cfg, err := p.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		skeinv1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, authorizationv1.AddToScheme, coordinationv1.AddToScheme, networkingv1.AddToScheme,
		storagev1.AddToScheme, admissionv1.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	return &checker{client: c, discovery: d, system: system, now: time.Now()}, err
}

func (one check) perform(ctx context.Context, c *checker) {
	err := one.run(ctx, c, func(level, remedy, format string, args ...any) {
		c.add(finding{Check: one.name, Level: level, Remedy: remedy, Message: fmt.Sprintf(format, args...)})
	})
	switch {
	case err == nil:
	case apierrors.IsForbidden(err):
		c.add(finding{Check: one.name, Level: levelWarning, Message: "you may not read this: " + err.Error()})
	default:
		c.add(finding{Check: one.name, Level: levelError, Message: err.Error()})
	}
}

func (p *plugin) printFinding(f finding) {
	mark := map[string]string{levelOK: p.style.green("ok  "), levelWarning: p.style.bold("warn"), levelError: p.style.red("FAIL")}[f.Level]
	fmt.Fprintf(p.Out, "%s  %s: %s\n", mark, f.Check, indent(safe(f.Message)))
	if f.Remedy != "" {
		fmt.Fprintf(p.Out, "      %s\n", indent(f.Remedy))
	}
}
