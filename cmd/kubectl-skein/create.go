package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// newThread says what Thread to make.
type newThread struct {
	name, agent, user, title, message string
}

func (n *newThread) flags(f *pflag.FlagSet) {
	f.StringVar(&n.agent, "agent", "", "The agent of the new thread.")
	f.StringVar(&n.user, "user-id", "", "The user whose variables and memory the new thread has.")
	f.StringVar(&n.title, "title", "", "The title of the new thread.")
}

func (n *newThread) object(ns string) *skeinv1.Thread {
	t := &skeinv1.Thread{
		TypeMeta:   metav1.TypeMeta{APIVersion: skeinv1.GroupVersion.String(), Kind: "Thread"},
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: n.name},
		Spec:       skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: n.agent}, UserID: n.user, Title: n.title, Message: n.message},
	}
	if n.name == "" {
		t.GenerateName = generateName(n.agent)
	}
	return t
}

func newCreate(p *plugin) *cobra.Command {
	var n newThread
	var dryRun bool
	var output string
	cmd := &cobra.Command{
		Use:   "create [NAME]",
		Short: "Make a thread of an agent",
		Long: `Make a thread of an agent. Without NAME the name begins with that of the agent. With --dry-run the command only
prints the manifest, to be kept in Git.`,
		Example: `  kubectl skein create orders --agent analyst --message "What came in today?"

  # A manifest
  kubectl skein create orders --agent analyst --dry-run > orders.yaml`,
		Args: upTo(0, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if n.agent == "" {
				return errors.New("--agent is missing: name the Agent that runs the thread")
			}
			if err := checkListOutput(output); err != nil {
				return err
			}
			if dryRun && output != "" && output != outputYAML {
				return fmt.Errorf("--dry-run prints a manifest as YAML: leave --output=%s out", output)
			}
			if len(args) > 0 {
				n.name = args[0]
			}
			if dryRun {
				_, ns, err := p.config()
				if err != nil {
					return err
				}
				return printManifest(p, n.object(ns))
			}
			_, t, err := p.createThread(cmd.Context(), &n)
			if err != nil {
				return err
			}
			t.SetGroupVersionKind(skeinv1.GroupVersion.WithKind("Thread"))
			if done, err := p.structured(output, t, []string{"thread.skein.dev/" + t.Name}); done {
				return err
			}
			fmt.Fprintf(p.Out, "thread/%s created\n", t.Name)
			return nil
		},
	}
	n.flags(cmd.Flags())
	cmd.Flags().StringVar(&n.message, "message", "", "The first message of the user, which starts the thread.")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "Print the manifest and make nothing.")
	outputFlag(cmd, &output)
	return cmd
}

// createThread makes a Thread.
func (p *plugin) createThread(ctx context.Context, n *newThread) (client.Client, *skeinv1.Thread, error) {
	cfg, ns, err := p.config()
	if err != nil {
		return nil, nil, err
	}
	c, err := threadObjects(cfg)
	if err != nil {
		return nil, nil, err
	}
	t := n.object(ns)
	return c, t, c.Create(ctx, t)
}

// createReady makes a Thread and returns its name when the runtime API has it.
func (p *plugin) createReady(ctx context.Context, n *newThread) (string, error) {
	c, obj, err := p.createThread(ctx, n)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(p.ErrOut, "thread/%s created\n", obj.Name)
	t, err := p.thread(obj.Name)
	if err != nil {
		return "", err
	}
	return obj.Name, awaitThread(ctx, c, t, obj, createTimeout)
}

// createTimeout bounds how long a new thread takes until the runtime API has it.
const createTimeout = time.Minute

// printManifest prints an object without what only the API server writes.
func printManifest(p *plugin, o client.Object) error {
	data, err := yaml.Marshal(o)
	if err != nil {
		return err
	}
	var fields map[string]any
	if err := yaml.Unmarshal(data, &fields); err != nil {
		return err
	}
	delete(fields, "status")
	if m, ok := fields["metadata"].(map[string]any); ok {
		delete(m, "creationTimestamp")
	}
	data, err = yaml.Marshal(fields)
	if err != nil {
		return err
	}
	_, err = p.Out.Write(data)
	return err
}

// generateName returns the beginning of the name of an agent's new thread. The API server adds five characters.
func generateName(agent string) string {
	return strings.TrimSuffix(agent[:min(len(agent), 50)], ".") + "-"
}
