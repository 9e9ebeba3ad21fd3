// Command krew prints the manifest by which krew installs kubectl skein, for the archives of a release:
//
//	krew -version v0.1.0 -base https://… build/krew/kubectl-skein_linux_amd64.tar.gz …
//
// The name of an archive says its platform: kubectl-skein_OS_ARCH.tar.gz.
package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// homepage of the project.
const homepage = "https://github.com/skein-dev/skein"

func main() {
	version := flag.String("version", "", "The version of the release, such as v0.1.0.")
	base := flag.String("base", "", "The address of the folder that has the archives.")
	flag.Parse()
	if err := run(os.Stdout, *version, *base, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "krew:", err)
		os.Exit(1)
	}
}

// plugin is a manifest of krew.
type plugin struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       spec     `json:"spec"`
}

type metadata struct {
	Name string `json:"name"`
}

type spec struct {
	Version          string     `json:"version"`
	Homepage         string     `json:"homepage"`
	ShortDescription string     `json:"shortDescription"`
	Description      string     `json:"description"`
	Caveats          string     `json:"caveats"`
	Platforms        []platform `json:"platforms"`
}

type platform struct {
	Selector selector `json:"selector"`
	URI      string   `json:"uri"`
	SHA256   string   `json:"sha256"`
	Bin      string   `json:"bin"`
	Files    []file   `json:"files"`
}

type selector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

type file struct {
	From string `json:"from"`
	To   string `json:"to"`
}

var (
	versions = regexp.MustCompile(`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?$`)
	archives = regexp.MustCompile(`^kubectl-skein_(linux|darwin|windows)_(amd64|arm64)\.tar\.gz$`)
)

// licence is the file with the licence, which krew wants beside each program.
const licence = "LICENSE"

func run(w io.Writer, version, base string, paths []string) error {
	if !versions.MatchString(version) {
		return fmt.Errorf("-version=%s: it must be a version such as v0.1.0", version)
	}
	if u, err := url.Parse(base); err != nil || u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("-base=%s: it must be an address that begins with https://", base)
	}
	if len(paths) == 0 {
		return errors.New("name the archives: kubectl-skein_OS_ARCH.tar.gz")
	}
	p := plugin{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: metadata{"skein"}, Spec: spec{
		Version: version, Homepage: homepage, ShortDescription: "Talk to agent threads and see their work",
		Description: "Skein runs agent threads in Kubernetes. This plugin talks to threads, follows\nwhat happens in them, builds agents from folders of TypeScript, and checks,\nbacks up and restores installations.\n",
		Caveats: "Check your cluster with: kubectl skein check\nFor completion, kubectl needs the plugin in your PATH under a second name:\n" +
			"  ln -s \"$(command -v kubectl-skein)\" ~/.local/bin/kubectl_complete-skein\n",
	}}
	slices.Sort(paths)
	for _, path := range paths {
		one, err := platformOf(path, base)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if slices.ContainsFunc(p.Spec.Platforms, func(o platform) bool { return o.URI == one.URI }) {
			return fmt.Errorf("%s: there is another archive for its platform", path)
		}
		p.Spec.Platforms = append(p.Spec.Platforms, one)
	}
	data, err := yaml.Marshal(p)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

func platformOf(path, base string) (p platform, err error) {
	m := archives.FindStringSubmatch(filepath.Base(path))
	if m == nil {
		return p, errors.New("the name of an archive is kubectl-skein_OS_ARCH.tar.gz, of linux, darwin or windows and amd64 or arm64")
	}
	p.Bin = "kubectl-skein"
	if m[1] == "windows" {
		p.Bin += ".exe"
	}
	f, err := os.Open(path)
	if err != nil {
		return p, err
	}
	defer f.Close()
	sum := sha256.New()
	in := io.TeeReader(f, sum)
	names, err := namesIn(in)
	if err != nil {
		return p, err
	}
	for _, name := range []string{p.Bin, licence} {
		if !slices.Contains(names, name) {
			return p, fmt.Errorf("the archive has no %s, but %s", name, strings.Join(names, ", "))
		}
		p.Files = append(p.Files, file{From: name, To: "."})
	}
	if _, err := io.Copy(io.Discard, in); err != nil { // what is behind the archive's end
		return p, err
	}
	p.Selector.MatchLabels = map[string]string{"os": m[1], "arch": m[2]}
	p.URI = strings.TrimSuffix(base, "/") + "/" + filepath.Base(path)
	p.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return p, nil
}

// namesIn returns the names of the files in an archive.
func namesIn(r io.Reader) (names []string, err error) {
	zip, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	in := tar.NewReader(zip)
	for {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		if head.Typeflag == tar.TypeReg && head.Mode&0o100 == 0 && strings.HasPrefix(head.Name, "kubectl-") {
			return nil, fmt.Errorf("%s cannot be executed", head.Name)
		}
		names = append(names, strings.TrimPrefix(head.Name, "./"))
	}
}
