package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/envkeys"
)

func newEnv(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "env",
		Short: "Show and set the variables of threads",
		Long: `Show and set the variables of threads. The values of secrets are never shown: only code that runs in the thread gets
them.

Setting variables needs a separate right: if the server refuses you, ask for the role skein-env-editor.`,
	}
	cmd.AddCommand(newEnvList(p), newEnvSet(p), newEnvUnset(p), newEnvPending(p), newEnvRotate(p), newEnvUserLabel(p))
	return cmd
}

func newEnvList(p *plugin) *cobra.Command {
	var output, side string
	cmd := &cobra.Command{
		Use:   "list THREAD",
		Short: "List the variables that a thread sees, and where they come from",
		Long: `List the variables that a thread sees, and where they come from. If its agent has two sides that see
different values, the list has one line for each side, and a column with the side.`,
		Example: `  # All that a thread sees
  kubectl skein env list hello

  # What the second of two sides sees
  kubectl skein env list hello --side=b`,
		Args: exactly("THREAD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkListOutput(output); err != nil {
				return err
			}
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			all := &runtimev1.EnvVarList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindEnvVarList), Variables: []runtimev1.EnvVar{}}
			for more := true; more; {
				page, err := t.ListEnvOf(cmd.Context(), side, runtimeclient.Page{Limit: runtimev1.MaxPageSize, Offset: len(all.Variables)})
				if err != nil {
					return err
				}
				all.Variables = append(all.Variables, page.Variables...)
				more = page.HasMore
			}
			if done, err := p.structured(output, all, namesOf(all.Variables, func(v *runtimev1.EnvVar) string { return v.Name })); done {
				return err
			}
			w := tabwriter.NewWriter(p.Out, 0, 0, 3, ' ', 0)
			sided := slices.ContainsFunc(all.Variables, func(v runtimev1.EnvVar) bool { return v.Side != "" })
			column := func(side string) string {
				if !sided {
					return ""
				}
				return side + "\t"
			}
			fmt.Fprintf(w, "NAME\t%sTYPE\tSOURCE\tVALUE\n", column("SIDE"))
			for _, v := range all.Variables {
				value, source := "(secret)", v.Source
				if v.Value != nil {
					value = cell(*v.Value)
				}
				if v.Origin != "" {
					source += " (" + v.Origin + ")"
				}
				fmt.Fprintf(w, "%s\t%s%s\t%s\t%s\n", v.Name, column(cmp.Or(v.Side, "both")), v.Type, source, value)
			}
			return w.Flush()
		},
	}
	cmd.Flags().StringVar(&side, "side", "", "Show what this side of the agent sees: a or b. The default is both sides.")
	outputFlag(cmd, &output)
	return cmd
}

func newEnvSet(p *plugin) *cobra.Command {
	var kind string
	cmd := &cobra.Command{
		Use:   "set THREAD NAME[=VALUE]",
		Short: "Set a variable of a thread and of its subagents' threads",
		Long: `Set a variable of a thread and of its subagents' threads. Without =VALUE the command reads the value from
standard input, so that no shell history keeps it. It drops one newline at the end of the value.`,
		Example: `  # A text, which may be shown
  kubectl skein env set hello REGION=north --type=text

  # A secret
  kubectl skein env set hello API_KEY < key.txt`,
		Args: exactly("THREAD", "NAME[=VALUE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, value, given := strings.Cut(args[1], "=")
			if !given {
				data, err := io.ReadAll(io.LimitReader(p.In, runtimev1.MaxBodyBytes))
				if err != nil {
					return err
				}
				value = withoutNewline(string(data))
			}
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			if err := t.SetEnv(cmd.Context(), name, value, kind); err != nil {
				return err
			}
			p.changed("variable/"+name, "%s set\n", name)
			return nil
		},
	}
	cmd.Flags().StringVar(&kind, "type", "", "text or secret. The default is the variable's present type, and secret for a new variable.")
	return cmd
}

func newEnvUnset(p *plugin) *cobra.Command {
	return &cobra.Command{
		Use:   "unset THREAD NAME",
		Short: "Remove a variable of a thread; a variable of the same name from another source applies again",
		Args:  exactly("THREAD", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			removed, err := t.UnsetEnv(cmd.Context(), args[1])
			if err == nil && !removed {
				err = fmt.Errorf("the thread has no variable %s of its own: kubectl skein env list %s shows where it comes from", args[1], args[0])
			}
			if err != nil {
				return err
			}
			p.changed("variable/"+args[1], "%s removed\n", args[1])
			return nil
		},
	}
}

func newEnvPending(p *plugin) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "pending THREAD",
		Short: "Show which variables a thread waits for",
		Args:  exactly("THREAD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkListOutput(output); err != nil {
				return err
			}
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			req, err := t.PendingEnv(cmd.Context())
			if err != nil {
				return err
			}
			if done, err := p.structured(output, req, namesOf(req.Variables, func(v *runtimev1.EnvWanted) string { return v.Name })); done {
				return err
			}
			if len(req.Variables) == 0 {
				fmt.Fprintln(p.ErrOut, "The thread waits for no variables.")
			}
			for _, v := range req.Variables {
				fmt.Fprintln(p.Out, strings.TrimRight(v.Name+"\t"+v.Type+"\t"+safe(v.Description), "\t"))
			}
			return nil
		},
	}
	outputFlag(cmd, &output)
	return cmd
}

// keysOptions say where the keys that seal variables are stored.
type keysOptions struct {
	namespace, secret string
	prune, force      bool
}

func newEnvRotate(p *plugin) *cobra.Command {
	o := keysOptions{namespace: "skein-system", secret: envkeys.DefaultSecret}
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Seal variables under a new key",
		Long: `Seal variables under a new key. The command adds the key as the primary one to the Secret of the manager's --env-key-secret.
The manager reads it within seconds, and then seals all values that are under older keys under the new one. When no value remains
under another key and every replica has had the time to read the new key, it says so in its log and in the Secret.
Only then does --prune remove the older keys.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.rotate(cmd.Context(), o) },
	}
	cmd.Flags().StringVar(&o.namespace, "system-namespace", o.namespace, "Namespace of the manager.")
	cmd.Flags().StringVar(&o.secret, "secret", o.secret, "Name of the Secret.")
	cmd.Flags().BoolVar(&o.prune, "prune", false, "Add no key. Remove all keys except the primary one.")
	cmd.Flags().BoolVar(&o.force, "force", false, "With --prune: do not wait for the manager. Values that are still sealed under the removed keys are lost.")
	return cmd
}

func (p *plugin) rotate(ctx context.Context, o keysOptions) error {
	if o.force && !o.prune {
		return errors.New("--force needs --prune")
	}
	cfg, _, err := p.config()
	if err != nil {
		return err
	}
	core, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return err
	}
	secrets := core.Secrets(o.namespace)
	s, err := secrets.Get(ctx, o.secret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !o.prune {
		return p.createKeys(ctx, secrets, o)
	}
	if err != nil {
		return err
	}
	said, err := changeKeys(s, o)
	if err != nil {
		return fmt.Errorf("secret %s/%s: %w", o.namespace, o.secret, err)
	}
	if _, err := secrets.Update(ctx, s, metav1.UpdateOptions{}); err != nil {
		return err
	}
	fmt.Fprintln(p.Out, said)
	return nil
}

// changeKeys changes the keyset in a Secret and returns a text that says how.
func changeKeys(s *corev1.Secret, o keysOptions) (said string, err error) {
	text := s.Data[envkeys.SecretKey]
	if !o.prune {
		rotated, primary, err := envkeys.Rotate(text)
		if err != nil {
			return "", err
		}
		s.Data[envkeys.SecretKey] = rotated
		return fmt.Sprintf("the key %d is primary now", primary), nil
	}
	ids, primary, err := envkeys.IDs(text)
	if err != nil {
		return "", err
	}
	var old []uint32
	for _, id := range ids {
		if id != primary {
			old = append(old, id)
		}
	}
	if len(old) == 0 {
		return "", errors.New("there are no keys to remove: only the primary key exists")
	}
	if !o.force && s.Annotations[skeinv1.AnnotationEnvSealedUnder] != fmt.Sprint(primary) {
		return "", fmt.Errorf("nothing was removed: the manager has not said yet that no variable remains under a key other than %d. "+
			"That takes up to three minutes after a rotation: try again then. With --force, variables that are under other keys are lost", primary)
	}
	if s.Data[envkeys.SecretKey], err = envkeys.Remove(text, old...); err != nil {
		return "", err
	}
	return fmt.Sprintf("removed %d keys; the key %d remains", len(old), primary), nil
}

func (p *plugin) createKeys(ctx context.Context, secrets corev1client.SecretInterface, o keysOptions) error {
	text, err := envkeys.Generate()
	if err != nil {
		return err
	}
	_, err = secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: o.secret, Labels: map[string]string{skeinv1.LabelManagedBy: skeinv1.ManagedByValue}},
		Data:       map[string][]byte{envkeys.SecretKey: text},
	}, metav1.CreateOptions{})
	if err == nil {
		fmt.Fprintf(p.Out, "made the Secret %s/%s\n", o.namespace, o.secret)
	}
	return err
}

func newEnvUserLabel(p *plugin) *cobra.Command {
	return &cobra.Command{
		Use:   "user-label USER",
		Short: "Show the labels of a Secret or ConfigMap with the variables of a user",
		Args:  exactly("USER"),
		RunE: func(_ *cobra.Command, args []string) error {
			fmt.Fprintf(p.Out, "%s=%s,%s=%s\n", skeinv1.LabelEnvScope, skeinv1.EnvScopeUser, skeinv1.LabelUser, skeinv1.UserLabel(args[0]))
			return nil
		},
	}
}
