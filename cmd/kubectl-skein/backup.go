package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/envkeys"
)

type backupOptions struct {
	file       string
	all        bool
	force      bool
	passphrase string // a file
	keys       keysOptions
}

func newBackup(p *plugin) *cobra.Command {
	o := backupOptions{keys: keysOptions{namespace: "skein-system", secret: envkeys.DefaultSecret}}
	cmd := &cobra.Command{
		Use:   "backup -o FILE|FOLDER",
		Short: "Write everything of a namespace into one file: objects, conversations, files and variables",
		Long: `Write everything of a namespace into one file: its objects of skein.dev, and all that is stored of its threads.

The backup shows the database at one moment, and the manager goes on working. Secrets and ConfigMaps are not part of a backup.
The conversations in the file are not encrypted. Variables are sealed under keys that are in a Secret of the manager; with
--passphrase-file these keys are in the file too, encrypted. You need the ClusterRole skein-backup.`,
		Example: `  # One namespace
  kubectl skein backup -n demo -o demo.tar.gz

  # All of them, into a folder, with the keys of variables
  kubectl skein backup --all-namespaces -o backups/ --passphrase-file passphrase.txt`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.backup(cmd.Context(), o) },
	}
	cmd.Flags().StringVarP(&o.file, "output", "o", "", "The file to write. For a folder, the command chooses a name with the time. - means standard output. An interrupted backup leaves no file.")
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "Back up every namespace that has objects of skein.dev.")
	cmd.Flags().StringVar(&o.passphrase, "passphrase-file", "", "Put the keys of variables into the backup, encrypted under the passphrase in this file.")
	cmd.Flags().BoolVar(&o.force, "force", false, "Replace the file if it exists.")
	o.keys.add(cmd)
	return cmd
}

func (o *keysOptions) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.namespace, "system-namespace", o.namespace, "Namespace of the manager.")
	cmd.Flags().StringVar(&o.secret, "secret", o.secret, "Name of the Secret with the keys.")
}

func readPassphrase(file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	return []byte(strings.TrimRight(string(data), "\r\n")), err
}

func (p *plugin) backup(ctx context.Context, o backupOptions) error {
	if o.file == "" {
		return errors.New("set where to write the backup: -o FILE, or -o FOLDER")
	}
	if info, err := os.Stat(o.file); err == nil && info.Mode().IsRegular() && !o.force {
		return fmt.Errorf("%s exists: name another file, or replace this one with --force", o.file)
	}
	cfg, ns, err := p.config()
	if err != nil {
		return err
	}
	objects, err := newObjects(cfg)
	if err != nil {
		return err
	}
	namespaces := []string{ns}
	if o.all {
		if namespaces, err = objects.namespaces(ctx); err != nil {
			return err
		}
	} else if err := namespaceExists(ctx, cfg, ns); err != nil {
		return err
	}
	var keys []byte
	if o.passphrase != "" {
		if keys, err = wrappedKeys(ctx, cfg, o); err != nil {
			return err
		}
	}
	b := &backupWriter{cfg: cfg, objects: objects, manifest: backupManifest{
		Format: backupFormat, ID: strings.ReplaceAll(uuid.NewString(), "-", "")[:16], CreatedAt: time.Now().UTC().Truncate(time.Second), Keys: keys != nil,
	}}
	if o.file == "-" {
		err = b.write(ctx, p.Out, namespaces, keys)
	} else {
		if info, statErr := os.Stat(o.file); statErr == nil && info.IsDir() {
			o.file = filepath.Join(o.file, fmt.Sprintf("skein-%s-%s.tar.gz", b.manifest.CreatedAt.Format("20060102T150405Z"), b.manifest.ID))
		}
		g := p.progress("backup", 0)
		err = writeFile(o.file, true, func(w io.Writer) error { return b.write(ctx, g.writer(w), namespaces, keys) })
		g.stop()
	}
	if err != nil {
		return fmt.Errorf("no backup was written: %w", err)
	}
	for _, n := range b.manifest.Namespaces {
		fmt.Fprintf(p.ErrOut, "%s: %d objects, %d threads, %d messages, %d contents of files\n", n.Name, n.Objects, n.Summary.Rows["thread_head"], n.Summary.Rows["message"], n.Summary.Contents)
		if len(n.Summary.KeyIDs) > 0 && keys == nil {
			fmt.Fprintf(p.ErrOut, "%s: its variables can be read only where the Secret %s/%s has the keys %v; --passphrase-file puts these keys into the backup\n", n.Name, o.keys.namespace, o.keys.secret, n.Summary.KeyIDs)
		}
	}
	fmt.Fprintf(p.ErrOut, "backup %s in %s, digest %s\n", b.manifest.ID, o.file, b.manifest.Digest)
	return nil
}

// namespaceExists fails when there is no such namespace. Without the right to read namespaces it takes the name as it is.
func namespaceExists(ctx context.Context, cfg *rest.Config, ns string) error {
	core, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return err
	}
	if _, err := core.Namespaces().Get(ctx, ns, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no namespace %q, and no backup was written: check -n", ns)
	}
	return nil
}

// wrappedKeys returns the keys that seal variables, encrypted.
func wrappedKeys(ctx context.Context, cfg *rest.Config, o backupOptions) ([]byte, error) {
	passphrase, err := readPassphrase(o.passphrase)
	if err != nil {
		return nil, err
	}
	core, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	s, err := core.Secrets(o.keys.namespace).Get(ctx, o.keys.secret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there are no keys in Secret %s/%s: leave out --passphrase-file, or name the manager's Secret with --system-namespace and --secret", o.keys.namespace, o.keys.secret)
	}
	if err != nil {
		return nil, err
	}
	keys, err := envkeys.Wrap(s.Data[envkeys.SecretKey], passphrase)
	if err != nil {
		return nil, fmt.Errorf("Secret %s/%s: %w", o.keys.namespace, o.keys.secret, err) //nolint:staticcheck // the name of a kind
	}
	return keys, nil
}

// backupWriter writes an archive.
type backupWriter struct {
	cfg      *rest.Config
	objects  *objectClient
	manifest backupManifest
	out      *digestedTar
}

func (b *backupWriter) write(ctx context.Context, w io.Writer, namespaces []string, keys []byte) error {
	zip := gzip.NewWriter(w)
	b.out = newDigestedTar(tar.NewWriter(zip), b.manifest.CreatedAt)
	if keys != nil {
		if err := b.out.file(keysFile, keys); err != nil {
			return err
		}
	}
	for _, ns := range slices.Sorted(slices.Values(namespaces)) {
		if err := b.namespace(ctx, ns); err != nil {
			return fmt.Errorf("namespace %s: %w", ns, err)
		}
	}
	b.manifest.Digest = b.out.digest()
	data, err := json.MarshalIndent(b.manifest, "", "  ")
	if err != nil {
		return err
	}
	if err := b.out.file(manifestFile, data); err != nil {
		return err
	}
	return errors.Join(b.out.tar.Close(), zip.Close())
}

// namespace adds the objects of a namespace, and then what is stored. So the rows of every object are there, unless it is deleted at
// this moment.
func (b *backupWriter) namespace(ctx context.Context, ns string) error {
	files, err := b.objects.export(ctx, ns)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := b.out.file(objectsFolder(ns)+name, files[name]); err != nil {
			return err
		}
	}
	c, err := runtimeclient.New(b.cfg)
	if err != nil {
		return err
	}
	stored, err := c.Backup(ctx, ns)
	if err != nil {
		return err
	}
	defer stored.Close()
	entry := backupNamespace{Name: ns, Objects: len(files)}
	in := tar.NewReader(stored)
	for {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("the manager's answer was cut off: %w", err)
		}
		if head.Name == runtimev1.BackupSummaryFile {
			data, err := io.ReadAll(in)
			if err != nil {
				return err
			}
			entry.Summary = &runtimev1.BackupSummary{}
			if err := json.Unmarshal(data, entry.Summary); err != nil {
				return fmt.Errorf("the manager's answer cannot be read: %w", err)
			}
			continue
		}
		if err := b.out.copy(dataFolder(ns)+head.Name, head.Size, in); err != nil {
			return fmt.Errorf("the manager's answer was cut off: %w", err)
		}
	}
	if entry.Summary == nil {
		return errors.New("the manager's answer was cut off before its end: try again")
	}
	b.manifest.Namespaces = append(b.manifest.Namespaces, entry)
	return nil
}
