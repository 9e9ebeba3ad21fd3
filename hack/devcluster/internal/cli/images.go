package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/skein-dev/skein/hack/devcluster/internal/flock"
	"github.com/skein-dev/skein/hack/devcluster/internal/image"
	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
	"github.com/skein-dev/skein/hack/devcluster/internal/node"
)

// imageFlags describe an image made from static binaries.
type imageFlags struct {
	name, binary, entrypoint string
	files                    []string
	user                     int
}

func (f *imageFlags) register(fl *flag.FlagSet) {
	fl.StringVar(&f.name, "name", "", "`reference` of the image, as in a pod: skein.dev/manager:dev")
	fl.StringVar(&f.binary, "binary", "", "static binary; in the image it is in / under the same name")
	fl.Func("file", "another file, `host-path:image-path`; can be repeated", func(s string) error {
		f.files = append(f.files, s)
		return nil
	})
	fl.StringVar(&f.entrypoint, "entrypoint", "", "program and first arguments, separated by spaces; by default the binary")
	fl.IntVar(&f.user, "user", 65532, "`number` of the user under which it runs")
}

func (f *imageFlags) spec() (image.Spec, error) {
	s := image.Spec{Name: f.name, Files: map[string]string{}, Entrypoint: strings.Fields(f.entrypoint), User: f.user}
	if f.name == "" || f.binary == "" {
		return s, errors.New("an image needs --name and --binary")
	}
	in := "/" + filepath.Base(f.binary)
	s.Files[in] = f.binary
	for _, p := range f.files {
		from, to, ok := strings.Cut(p, ":")
		if !ok || !strings.HasPrefix(to, "/") {
			return s, fmt.Errorf("--file %q is not of the form host-path:/image-path", p)
		}
		s.Files[to] = from
	}
	if len(s.Entrypoint) == 0 {
		s.Entrypoint = []string{in}
	}
	return s, nil
}

func writeImage(_ context.Context, args []string) (int, error) {
	var f imageFlags
	fl := flag.NewFlagSet("image", flag.ContinueOnError)
	f.register(fl)
	out := fl.String("out", "", "`file` for the archive")
	if err := parse(fl, args); err != nil {
		return 1, err
	}
	if *out == "" {
		return 1, errors.New("image needs --out, a file for the archive")
	}
	s, err := f.spec()
	if err != nil {
		return 1, err
	}
	if err := image.Write(s, *out); err != nil {
		return 1, err
	}
	return 0, nil
}

func load(ctx context.Context, args []string) (int, error) {
	var f imageFlags
	var p place
	fl := flag.NewFlagSet("load", flag.ContinueOnError)
	clusterName := fl.String("cluster", "skein", "`name` of the cluster")
	fl.StringVar(&p.dir, "dir", os.Getenv("SKEIN_DEVCLUSTER_DIR"), "run `directory` of the cluster")
	f.register(fl)
	archive := fl.String("archive", "", "image archive, OCI or Docker, instead of --name and --binary")
	if err := parse(fl, args); err != nil {
		return 1, err
	}
	p.name = *clusterName
	d, err := p.resolve()
	if err != nil {
		return 1, err
	}
	cfg, err := d.ReadConfig()
	if err != nil || !flock.Held(d.SupervisorLock()) {
		return 1, fmt.Errorf("no cluster is up in %s: run up first", d)
	}
	if !cfg.Node {
		return 1, fmt.Errorf("the cluster has no node to load images into: %s", cfg.NodeReason)
	}
	if *archive != "" {
		if f.binary != "" || f.name != "" {
			return 1, errors.New("load takes either --archive, or --name and --binary")
		}
		abs, err := filepath.Abs(*archive)
		if err != nil {
			return 1, err
		}
		return result(node.Import(ctx, d, cfg, abs))
	}
	s, err := f.spec()
	if err != nil {
		return 1, err
	}
	return result(loadBinary(ctx, d, cfg, s))
}

func loadBinary(ctx context.Context, d layout.Dir, cfg layout.Config, s image.Spec) error {
	tmp, err := os.MkdirTemp("", "skein-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	archive := filepath.Join(tmp, "image.tar")
	if err := image.Write(s, archive); err != nil {
		return err
	}
	return node.Import(ctx, d, cfg, archive)
}

func result(err error) (int, error) {
	if err != nil {
		return 1, err
	}
	return 0, nil
}
