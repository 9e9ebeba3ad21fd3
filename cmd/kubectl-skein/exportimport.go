package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

func newExport(p *plugin) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "export THREAD",
		Short: "Write a conversation as lines of JSON",
		Example: `  # Into a file; an interrupted export leaves no file
  kubectl skein export orders -o orders.jsonl`,
		Args: exactly("THREAD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			lines, err := t.Export(cmd.Context())
			if err != nil {
				return err
			}
			defer lines.Close()
			if file == "" || file == "-" {
				_, err = io.Copy(p.Out, lines)
				return err
			}
			g := p.progress(args[0], 0)
			defer g.stop()
			return writeFile(file, false, copyOf(g.reader(lines)))
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "The file to write. The default is standard output.")
	return cmd
}

type importOptions struct {
	thread, agent, name string
	timeout             time.Duration
}

func newImport(p *plugin) *cobra.Command {
	var o importOptions
	cmd := &cobra.Command{
		Use:   "import FILE (--thread THREAD | --agent AGENT [--name NAME])",
		Short: "Fill an empty thread with an exported conversation",
		Long: `Fill an empty thread with an exported conversation, all of it or nothing.

With --agent the command first creates the thread, and deletes it again if the import fails. Set FILE to - to read standard
input.`,
		Example: `  # A copy of a conversation
  kubectl skein export orders | kubectl skein import - --agent analyst --name orders-copy`,
		Args: exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			in := p.In
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close()
				if info, err := f.Stat(); err == nil && info.IsDir() {
					return fmt.Errorf("%s is a folder: name a file", args[0])
				}
				g := p.progress(filepath.Base(args[0]), sizeOf(f))
				defer g.stop()
				in = g.reader(f)
			}
			if o.thread == "" {
				return p.importNew(cmd.Context(), in, &o)
			}
			t, err := p.thread(o.thread)
			if err != nil {
				return err
			}
			return p.importInto(cmd.Context(), t, o.thread, in)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.thread, "thread", "", "The thread to fill. It must be empty.")
	f.StringVar(&o.agent, "agent", "", "The agent of the thread to create.")
	f.StringVar(&o.name, "name", "", "With --agent: the name of the thread. The default is a generated name.")
	f.DurationVar(&o.timeout, "timeout", time.Minute, "With --agent: how long to wait until the thread is set up.")
	return cmd
}

func (o *importOptions) check() error {
	switch {
	case o.thread == "" && o.agent == "":
		return errors.New("set the target: --thread THREAD for an existing empty thread, or --agent AGENT to create one")
	case o.thread != "" && o.agent != "":
		return errors.New("set either --thread or --agent: an existing thread has an agent already")
	case o.thread != "" && o.name != "":
		return errors.New("--name needs --agent: an existing thread has a name already")
	}
	return nil
}

func (p *plugin) importInto(ctx context.Context, t *runtimeclient.Thread, name string, in io.Reader) error {
	res, err := t.Import(ctx, in)
	if err != nil {
		return err
	}
	p.changed(threadName(name), "thread/%s imported: messages %d, other lines %d\n", name, res.Messages, res.Events)
	return nil
}

// importNew creates a thread and fills it. When that fails it deletes the thread again.
func (p *plugin) importNew(ctx context.Context, in io.Reader, o *importOptions) (err error) {
	cfg, ns, err := p.config()
	if err != nil {
		return err
	}
	c, err := threadObjects(cfg)
	if err != nil {
		return err
	}
	obj := &skeinv1.Thread{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: o.name},
		Spec:       skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: o.agent}},
	}
	if o.name == "" {
		obj.GenerateName = generateName(o.agent)
	}
	if err := c.Create(ctx, obj); err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		// Delete the thread even if the user has interrupted the command.
		gone := c.Delete(context.WithoutCancel(ctx), obj, client.Preconditions{UID: &obj.UID})
		if client.IgnoreNotFound(gone) != nil {
			fmt.Fprintf(p.ErrOut, "thread/%s stays, empty: %v\n", obj.Name, gone)
		}
	}()
	rc, err := runtimeclient.New(cfg)
	if err != nil {
		return err
	}
	t := rc.Thread(ns, obj.Name)
	if err := awaitThread(ctx, c, t, obj, o.timeout); err != nil {
		return err
	}
	return p.importInto(ctx, t, obj.Name, in)
}

func threadObjects(cfg *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := skeinv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return client.New(cfg, client.Options{Scheme: scheme})
}

// awaitThread waits until the runtime API has a thread that was just created.
func awaitThread(ctx context.Context, c client.Client, t *runtimeclient.Thread, obj *skeinv1.Thread, timeout time.Duration) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		_, err := t.Get(ctx)
		if apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) {
			last = err
			return false, nil
		}
		return err == nil, err
	})
	if !wait.Interrupted(err) || ctx.Err() != nil {
		return err
	}
	why := last
	if c.Get(ctx, client.ObjectKeyFromObject(obj), obj) == nil {
		if r := meta.FindStatusCondition(obj.Status.Conditions, skeinv1.ConditionReady); r != nil && r.Status != metav1.ConditionTrue {
			why = fmt.Errorf("%s (%s)", r.Message, r.Reason)
		}
	}
	return fmt.Errorf("thread/%s was not ready within %s: %w", obj.Name, timeout, why)
}
