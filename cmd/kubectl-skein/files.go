package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

func newFiles(p *plugin) *cobra.Command {
	cmd := &cobra.Command{Use: "files", Short: "List, copy and remove the files of a thread"}
	cmd.AddCommand(newFilesList(p), newFilesCopy(p), newFilesRemove(p))
	return cmd
}

func newFilesList(p *plugin) *cobra.Command {
	var recursive bool
	var output string
	cmd := &cobra.Command{
		Use:     "ls THREAD [FOLDER]",
		Short:   "List files",
		Aliases: []string{"list"},
		Args:    upTo(1, "THREAD", "FOLDER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkListOutput(output); err != nil {
				return err
			}
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			folder := "/"
			if len(args) == 2 {
				folder = args[1]
			}
			list, err := listAll(cmd.Context(), t, folder, recursive)
			if err != nil {
				return err
			}
			if len(list.Files) == 0 && path.Clean("/"+folder) != "/" { // folders are the paths of files, so none is empty
				rec, err := t.StatFile(cmd.Context(), folder)
				if err != nil {
					return err
				}
				if rec == nil {
					return fmt.Errorf("thread %s has no folder %s: `kubectl skein files ls %s -R` shows what there is", args[0], folder, args[0])
				}
				list.Files = append(list.Files, *rec)
			}
			if done, err := p.structured(output, list, namesOf(list.Files, func(f *runtimev1.FileRecord) string { return f.Path })); done {
				return err
			}
			if len(list.Files) == 0 {
				fmt.Fprintln(p.ErrOut, "No files.")
				return nil
			}
			w := printers.GetNewTabWriter(p.Out)
			fmt.Fprintln(w, wideRow(output, "PATH\tSIZE\tTYPE\tWRITTEN", "BYTES", "STORAGE"))
			for _, f := range list.Files {
				name, size, kind := f.Path, humanSize(f.Size), f.MimeType
				if f.IsDirectory {
					name, size, kind = f.Path+"/", "-", "folder"
				}
				fmt.Fprintln(w, wideRow(output, fmt.Sprintf("%s\t%s\t%s\t%s", cell(name), size, cell(kind), time.UnixMicro(f.CreatedAt).Format(time.DateTime)), f.Size, f.Storage))
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "R", false, "List the contents of folders too.")
	outputFlag(cmd, &output)
	return cmd
}

func listAll(ctx context.Context, t *runtimeclient.Thread, folder string, recursive bool) (*runtimev1.FileList, error) {
	whole := &runtimev1.FileList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindFileList), Files: []runtimev1.FileRecord{}}
	for {
		page, err := t.Files(ctx, runtimeclient.FileOptions{
			Page: runtimeclient.Page{Limit: runtimev1.MaxPageSize, Offset: len(whole.Files)}, Prefix: folder, Recursive: recursive,
		})
		if err != nil {
			return nil, err
		}
		whole.Files = append(whole.Files, page.Files...)
		if !page.HasMore || len(page.Files) == 0 {
			return whole, nil
		}
	}
}

func newFilesCopy(p *plugin) *cobra.Command {
	return &cobra.Command{
		Use:   "cp SOURCE DESTINATION",
		Short: "Copy a file into a thread or out of it",
		Long: `Copy a file into a thread or out of it.

One of SOURCE and DESTINATION is THREAD:/path. The other is a local path, or - for standard input or output.`,
		Example: `  kubectl skein files cp ./orders.csv hello:/data/orders.csv
  kubectl skein files cp hello:/report.md .`,
		Args: exactly("SOURCE", "DESTINATION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, fromRemote := remotePath(args[0])
			to, toRemote := remotePath(args[1])
			switch {
			case fromRemote && toRemote:
				return errors.New("one side must be local: copy out of the one thread first, then into the other")
			case fromRemote:
				return p.download(cmd.Context(), from, args[1])
			case toRemote:
				return p.uploadTo(cmd.Context(), args[0], to)
			}
			return fmt.Errorf("neither %q nor %q is in a thread: use THREAD:/path for one of them", args[0], args[1])
		},
	}
}

// location is a path in a thread.
type location struct{ thread, path string }

// remotePath parses THREAD:PATH. A local path with a colon can be written as ./a:b.
func remotePath(arg string) (location, bool) {
	thread, p, ok := strings.Cut(arg, ":")
	if !ok || thread == "" || strings.HasPrefix(thread, ".") || strings.ContainsAny(thread, `/\`) {
		return location{}, false
	}
	return location{thread: thread, path: p}, true
}

func (p *plugin) uploadTo(ctx context.Context, local string, to location) error {
	in := p.In
	if local != "-" {
		f, err := os.Open(local)
		if err != nil {
			return err
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.IsDir() {
			return fmt.Errorf("%s is a folder: copy its files one by one", local)
		}
		in = f
		if to.path == "" || strings.HasSuffix(to.path, "/") {
			to.path = path.Join("/", to.path, filepath.Base(local))
		}
	}
	if to.path == "" {
		return fmt.Errorf("name the file, as in %s:/path", to.thread)
	}
	t, err := p.thread(to.thread)
	if err != nil {
		return err
	}
	g := p.progress(filepath.Base(local), sizeOf(in))
	rec, err := t.WriteFile(ctx, to.path, g.reader(in), runtimeclient.WriteFileOptions{})
	g.stop()
	if err != nil {
		return err
	}
	fmt.Fprintf(p.Out, "%s:%s written (%s)\n", to.thread, safe(rec.Path), humanSize(rec.Size))
	return nil
}

func (p *plugin) download(ctx context.Context, from location, local string) error {
	if from.path == "" {
		return fmt.Errorf("name the file, as in %s:/path", from.thread)
	}
	t, err := p.thread(from.thread)
	if err != nil {
		return err
	}
	in, err := t.ReadFile(ctx, from.path)
	if err != nil {
		return err
	}
	if in == nil {
		return fmt.Errorf("thread %s has no file %s: `kubectl skein files ls %s` shows what there is", from.thread, from.path, from.thread)
	}
	defer in.Close()
	if local == "-" {
		_, err = io.Copy(p.Out, in)
		return err
	}
	g := p.progress(path.Base(from.path), p.remoteSize(ctx, t, from.path))
	defer g.stop()
	if info, err := os.Stat(local); err == nil && info.IsDir() {
		local = filepath.Join(local, path.Base(from.path))
	}
	return writeFile(local, false, copyOf(g.reader(in)))
}

// remoteSize returns the size of a file of a thread, or 0 when the output is not a terminal or the server does not say.
func (p *plugin) remoteSize(ctx context.Context, t *runtimeclient.Thread, path string) int64 {
	if !isTerminal(p.ErrOut) {
		return 0
	}
	rec, err := t.StatFile(ctx, path)
	if err != nil || rec == nil {
		return 0
	}
	return rec.Size
}

func newFilesRemove(p *plugin) *cobra.Command {
	return &cobra.Command{
		Use:   "rm THREAD PATH",
		Short: "Remove a file or an empty folder",
		Args:  exactly("THREAD", "PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			if err := t.DeleteFile(cmd.Context(), args[1]); err != nil {
				return err
			}
			p.changed("file/"+args[0]+":"+args[1], "%s:%s removed\n", args[0], args[1])
			return nil
		},
	}
}

func humanSize(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	size, i := float64(n), 0
	for size >= 1024 && i < len(units)-1 {
		size, i = size/1024, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", size, units[i])
}
