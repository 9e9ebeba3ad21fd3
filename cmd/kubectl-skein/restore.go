package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/envkeys"
)

type restoreOptions struct {
	passphrase, digest string
	namespaces         map[string]string
	dryRun, abandon    bool
	timeout            time.Duration
	keys               keysOptions
}

func newRestore(p *plugin) *cobra.Command {
	o := restoreOptions{keys: keysOptions{namespace: "skein-system", secret: envkeys.DefaultSecret}}
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore what kubectl skein backup wrote, into this cluster or another one",
		Long: `Restore what kubectl skein backup wrote: objects, conversations, files and variables. Threads keep their ids.

The command first reads the whole file, and writes nothing if the file is incomplete or changed. It writes keys of variables after it
has checked all namespaces. If the file changes while the command sends it, none of its data becomes visible. Conversations become
visible once all conversations of their namespace are stored, and continue once all objects exist. A restore that was interrupted
continues when you repeat the command. The command never overwrites threads that are stored already: it refuses the namespace.
Definitions that exist stay as they are. The namespaces must exist. You need the ClusterRole skein-backup, and for objects that name
Secrets, users, images or settings of pools the rights of their authors. The command writes nothing if you may not create an object.`,
		Example: `  # See what would be restored
  kubectl skein restore demo.tar.gz --dry-run

  # Into a namespace of another name, with the keys of variables
  kubectl skein restore demo.tar.gz --namespace-map demo=demo2 --passphrase-file passphrase.txt`,
		Args: exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error { return p.restore(cmd.Context(), args[0], o) },
	}
	f := cmd.Flags()
	f.StringToStringVar(&o.namespaces, "namespace-map", nil, "Restore a namespace under another name: OLD=NEW.")
	f.BoolVar(&o.dryRun, "dry-run", false, "Check everything, and write nothing.")
	f.BoolVar(&o.abandon, "abandon", false, "Remove the data that an interrupted restore has written and that is not visible yet. Restore nothing.")
	f.StringVar(&o.digest, "digest", "", "Refuse the backup unless it has this digest, which backup printed.")
	f.StringVar(&o.passphrase, "passphrase-file", "", "Add the keys of variables in the backup to the Secret of the manager, with the passphrase in this file.")
	f.DurationVar(&o.timeout, "timeout", 5*time.Minute, "How long to wait for the manager to take over keys and threads.")
	o.keys.add(cmd)
	return cmd
}

func (p *plugin) restore(ctx context.Context, file string, o restoreOptions) error {
	b, err := openBackup(file, o.digest)
	if err != nil {
		return err
	}
	if err := o.checkNamespaces(b); err != nil {
		return err
	}
	cfg, _, err := p.config()
	if err != nil {
		return err
	}
	c, err := runtimeclient.New(cfg)
	if err != nil {
		return err
	}
	if o.abandon {
		return p.abandon(ctx, c, b, o)
	}
	objects, err := newObjects(cfg)
	if err != nil {
		return err
	}
	keys, err := o.keysOf(b)
	if err != nil {
		return err
	}
	var all []*namespaceRestore
	for _, n := range b.manifest.Namespaces {
		r := &namespaceRestore{p: p, o: o, backup: b, entry: n, client: c, objects: objects, namespace: o.nameOf(n.Name)}
		r.restore = c.Restore(r.namespace, b.manifest.ID)
		if err := r.check(ctx, cfg); err != nil {
			return fmt.Errorf("namespace %s: %w", r.namespace, err)
		}
		all = append(all, r)
	}
	if o.dryRun {
		fmt.Fprintln(p.Out, "nothing was written (--dry-run)")
		return nil
	}
	if keys != nil { // only now, since nothing is in the way of any namespace
		if err := addKeys(ctx, cfg, o.keys, keys); err != nil {
			return err
		}
	}
	for _, r := range all {
		if keys != nil {
			if err := r.awaitKeys(ctx); err != nil {
				return fmt.Errorf("namespace %s: %w", r.namespace, err)
			}
		}
		var g *progress
		b.counted = func(f *os.File) io.Reader { // of each namespace, since each reads the whole file
			g = p.progress(r.namespace, sizeOf(f))
			return g.reader(f)
		}
		err := r.run(ctx)
		if g != nil {
			g.stop()
		}
		if err != nil {
			return fmt.Errorf("namespace %s: %w; repeat the command to continue", r.namespace, err)
		}
	}
	return nil
}

func (o *restoreOptions) nameOf(ns string) string {
	if to := o.namespaces[ns]; to != "" {
		return to
	}
	return ns
}

func (o *restoreOptions) checkNamespaces(b *openedBackup) error {
	into, has := map[string]string{}, map[string]bool{}
	var names []string
	for _, n := range b.manifest.Namespaces {
		has[n.Name], names = true, append(names, n.Name)
		to := o.nameOf(n.Name)
		if other := into[to]; other != "" {
			return fmt.Errorf("--namespace-map puts %s and %s into %s: restore each into a namespace of its own", other, n.Name, to)
		}
		into[to] = n.Name
	}
	for from := range o.namespaces {
		if !has[from] {
			return fmt.Errorf("--namespace-map names %s, but the backup has: %s", from, strings.Join(names, ", "))
		}
	}
	return nil
}

func (p *plugin) abandon(ctx context.Context, c *runtimeclient.Client, b *openedBackup, o restoreOptions) error {
	for _, n := range b.manifest.Namespaces {
		if err := c.Restore(o.nameOf(n.Name), b.manifest.ID).Abandon(ctx); err != nil {
			return err
		}
		fmt.Fprintf(p.Out, "%s: what was not visible of backup %s is removed\n", o.nameOf(n.Name), b.manifest.ID)
	}
	return nil
}

// keysOf returns the keys in the backup, or nil without --passphrase-file.
func (o *restoreOptions) keysOf(b *openedBackup) ([]byte, error) {
	if o.passphrase == "" {
		return nil, nil
	}
	if b.keys == nil {
		return nil, errors.New("the backup has no keys: leave out --passphrase-file")
	}
	passphrase, err := readPassphrase(o.passphrase)
	if err != nil {
		return nil, err
	}
	return envkeys.Unwrap(b.keys, passphrase)
}

// addKeys adds keys to the Secret of the manager.
func addKeys(ctx context.Context, cfg *rest.Config, o keysOptions, keys []byte) error {
	core, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return err
	}
	lost := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) } // to another restore
	return retry.OnError(retry.DefaultRetry, lost, func() error { return mergeKeys(ctx, core.Secrets(o.namespace), o, keys) })
}

func mergeKeys(ctx context.Context, secrets corev1client.SecretInterface, o keysOptions, keys []byte) error {
	s, err := secrets.Get(ctx, o.secret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: o.secret, Labels: map[string]string{skeinv1.LabelManagedBy: skeinv1.ManagedByValue}},
			Data:       map[string][]byte{envkeys.SecretKey: keys},
		}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	merged, err := envkeys.Merge(s.Data[envkeys.SecretKey], keys)
	if err != nil {
		return fmt.Errorf("secret %s/%s: %w", o.namespace, o.secret, err)
	}
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	s.Data[envkeys.SecretKey] = merged
	delete(s.Annotations, skeinv1.AnnotationEnvSealedUnder) // values under the keys of the backup come back
	_, err = secrets.Update(ctx, s, metav1.UpdateOptions{})
	return err
}

// maxPlanThreads is how many ids of threads one request checks.
const maxPlanThreads = 10000

// begin asks how far the restore has come, and whether it can be made.
func (r *namespaceRestore) begin(ctx context.Context) (state *runtimev1.RestoreState, err error) {
	ids := r.backup.threads[r.entry.Name]
	for first := true; first || len(ids) > 0; first = false {
		n := min(len(ids), maxPlanThreads)
		plan := runtimev1.RestorePlan{Schema: r.entry.Summary.Schema, Threads: ids[:n]}
		if r.o.passphrase == "" { // otherwise the keys come with the backup
			plan.KeyIDs = r.entry.Summary.KeyIDs
		}
		ids = ids[n:]
		if state, err = r.restore.Begin(ctx, plan); err != nil {
			return nil, err
		}
	}
	return state, nil
}

// awaitKeys waits until the manager has the keys of the backup. New keys reach it after a while.
func (r *namespaceRestore) awaitKeys(ctx context.Context) error {
	plan := runtimev1.RestorePlan{Schema: r.entry.Summary.Schema, KeyIDs: r.entry.Summary.KeyIDs}
	last := error(nil)
	err := wait.PollUntilContextTimeout(ctx, time.Second, r.o.timeout, true, func(ctx context.Context) (bool, error) {
		_, last = r.restore.Begin(ctx, plan)
		if apierrors.IsInvalid(last) && strings.Contains(last.Error(), "sealed under keys") {
			return false, nil
		}
		return last == nil, last
	})
	if wait.Interrupted(err) && last != nil {
		return last
	}
	return err
}

// send sends rows and contents.
func (r *namespaceRestore) send(ctx context.Context) error {
	folder := dataFolder(r.entry.Name)
	return r.backup.unchanged(func(name string, size int64, in io.Reader) error {
		name, ours := strings.CutPrefix(name, folder)
		if !ours {
			return nil
		}
		if digest, ok := strings.CutPrefix(name, runtimev1.BackupContentsPrefix); ok {
			return r.restore.Contents(ctx, digest, size, in)
		}
		if !strings.HasPrefix(name, runtimev1.BackupRowsPrefix) {
			return nil
		}
		lines, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		return r.restore.Rows(ctx, lines)
	})
}
