package build

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/sandbox/inspect"
)

const (
	// maxInline is the longest code that an object may have within it; what is longer goes into a ConfigMap.
	maxInline = 256 << 10
	// maxCode is the longest code that a ConfigMap takes, and that the manager compiles.
	maxCode = 1_000_000
	// maxApply is about the longest object that kubectl apply takes without --server-side: it keeps a copy in an annotation.
	maxApply = 250_000
	// maxNamed bounds how many inputs of a bundle that is too large are named.
	maxNamed = 5
)

// Result is what a folder becomes.
type Result struct {
	// Objects in the order of their kinds and names.
	Objects []Object
	// Notes for the person who builds.
	Notes []string
	// Files that definitions are made of, relative to the folder.
	Files []string
}

// Build bundles the definitions of a folder. It writes nothing. The same files give the same objects.
func Build(dir string) (*Result, error) {
	dir, err := projectDir(dir)
	if err != nil {
		return nil, err
	}
	config, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	objects, slots, err := readObjects(dir, config.Objects)
	if err != nil {
		return nil, err
	}
	sources, err := config.sources(dir)
	if err != nil {
		return nil, err
	}
	res := &Result{}
	named := map[string]bool{}
	for _, s := range slots {
		named[s.file] = true
	}
	for _, s := range sources {
		if named[s.file] { // a manifest says what it is
			continue
		}
		o, place := byConvention(s, len(objects))
		objects, slots = append(objects, o), append(slots, place)
		named[s.file] = true
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("%s has nothing to build: put definitions into %s/, %s/, %s/ or %s/, and manifests into %s/",
			dir, config.Tools, config.Effects, config.Endpoints, config.Agents, config.Objects)
	}
	for file := range named {
		res.Files = append(res.Files, file)
	}
	slices.Sort(res.Files)
	made, err := bundles(dir, res.Files, config.Minify)
	if err != nil {
		return nil, err
	}
	var wrong []error
	for i, s := range slots {
		if err := s.fill(made[s.file], &objects[s.object], i, &res.Objects); err != nil {
			wrong = append(wrong, err)
		}
	}
	res.Objects = append(res.Objects, objects...)
	if err := errors.Join(append(wrong, twice(res.Objects))...); err != nil {
		return nil, err
	}
	slices.SortStableFunc(res.Objects, func(a, b Object) int {
		return cmp.Or(strings.Compare(a.Kind(), b.Kind()), strings.Compare(a.Name(), b.Name()), strings.Compare(a.Namespace(), b.Namespace()))
	})
	for _, o := range res.Objects {
		if data, err := json.Marshal(o.Fields); err == nil && len(data) > maxApply {
			res.Notes = append(res.Notes, fmt.Sprintf("%s has %d bytes: apply it with --server-side", o, len(data)))
		}
	}
	res.Notes = append(res.Notes, unusedHooks(dir, named)...)
	return res, nil
}

func projectDir(dir string) (string, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is not a folder: name the folder that has tools/, effects/, endpoints/, agents/ or objects/", dir)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir) // so that paths in the result begin at the folder, however it was named
}

// fill puts a bundle into its place. Code that is too long for the object goes into a ConfigMap, which is added to more.
func (s slot) fill(b bundle, o *Object, at int, more *[]Object) error {
	if err := s.check(b.code); err != nil {
		return err
	}
	if err := s.declare(inspect.DeclaredBy(b.code)); err != nil {
		return err
	}
	if len(b.code) > maxCode {
		return b.tooLarge(s.file)
	}
	clear(s.code)
	if len(b.code) <= maxInline {
		s.code["inline"], s.code["language"] = b.code, "javascript"
		return nil
	}
	parts := []string{strings.ToLower(o.Kind()), o.Name()}
	if s.label != "" {
		parts = append(parts, objectName(strings.TrimSuffix(filepath.Base(s.file), filepath.Ext(s.file))))
	}
	name := strings.Join(parts, "-") + "-code"
	for _, other := range *more {
		if other.Name() == name { // two files of one name
			name = fmt.Sprintf("%s-%d", name, at)
		}
	}
	meta := map[string]any{"name": name}
	if ns := o.Namespace(); ns != "" {
		meta["namespace"] = ns
	}
	*more = append(*more, Object{From: s.file, Fields: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": map[string]any{"code.js": b.code},
	}})
	s.code["configMapKeyRef"] = map[string]any{"name": name, "key": "code.js"}
	return nil
}

// check returns what would keep the object from being Ready.
func (s slot) check(code string) error {
	var wrong []error
	for _, p := range s.use.Check(code) {
		wrong = append(wrong, fmt.Errorf("%s: %s", s.file, p.Message))
	}
	return errors.Join(wrong...)
}

func (b bundle) tooLarge(file string) error {
	var t strings.Builder
	fmt.Fprintf(&t, "%s: with all its imports the code has %d bytes, and the limit is %d; the largest files:", file, len(b.code), maxCode)
	for _, in := range b.inputs[:min(len(b.inputs), maxNamed)] {
		fmt.Fprintf(&t, "\n    %9d  %s", in.bytes, in.path)
	}
	t.WriteString("\n  import less of a package, or set minify: true in " + ConfigFile)
	return errors.New(t.String())
}

// twice returns an error for objects of the same kind and name.
func twice(objects []Object) error {
	var wrong []error
	seen := map[string]string{}
	for _, o := range objects {
		id := o.APIVersion() + "/" + o.Namespace() + "/" + o.String()
		if from, ok := seen[id]; ok {
			wrong = append(wrong, fmt.Errorf("%s and %s both make %s: rename one, or name the file in the manifest with code: {file: …}", from, o.From, o))
		}
		seen[id] = o.From
	}
	return errors.Join(wrong...)
}

// unusedHooks says which files of hooks/ no manifest names.
func unusedHooks(dir string, named map[string]bool) (notes []string) {
	files, _ := codeFiles(dir, "hooks", false) // a folder that cannot be read has no hooks
	for _, f := range files {
		if !named[f] {
			notes = append(notes, f+" is not used by any object: name it in the hooks of an Agent or a Prompt, with code: {file: …}")
		}
	}
	return notes
}
