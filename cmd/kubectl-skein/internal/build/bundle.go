package build

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/skein-dev/skein/internal/sandbox/inspect"
)

// bundle is one module with all that it imports.
type bundle struct {
	code string
	// inputs are the files that it is made of, the largest first.
	inputs []input
}

// input is a file in a bundle.
type input struct {
	path  string // relative to the project
	bytes int    // that it takes of the bundle
}

// bundles returns the bundle of each file, by the file. All mistakes are in the error.
func bundles(dir string, files []string, minify bool) (map[string]bundle, error) {
	if len(files) == 0 {
		return nil, nil
	}
	var entries []api.EntryPoint
	outputs := map[string]string{} // the file, by the path of its output
	for i, file := range files {
		name := fmt.Sprintf("entry-%d", i)
		entries = append(entries, api.EntryPoint{InputPath: "./" + file, OutputPath: name})
		outputs["out/"+name+".js"] = file
	}
	res := api.Build(api.BuildOptions{
		AbsWorkingDir:       dir,
		EntryPointsAdvanced: entries,
		Outdir:              filepath.Join(dir, "out"),
		Bundle:              true,
		Write:               false,
		Metafile:            true,
		Format:              api.FormatESModule,
		// Sandboxes are rather like browsers without pages than like Node.js: of a package with a variant for each, this is the
		// one that can work.
		Platform:          api.PlatformBrowser,
		Target:            api.ES2023,
		Supported:         map[string]bool{"using": false, "top-level-await": true},
		Charset:           api.CharsetUTF8,
		LegalComments:     api.LegalCommentsInline,
		MinifyWhitespace:  minify,
		MinifySyntax:      minify,
		MinifyIdentifiers: minify,
		Define:            map[string]string{"process.env.NODE_ENV": `"production"`, "global": "globalThis"},
		Loader:            map[string]api.Loader{".md": api.LoaderText, ".txt": api.LoaderText, ".csv": api.LoaderText, ".wasm": api.LoaderBinary},
		LogLevel:          api.LogLevelSilent,
		LogLimit:          0,
		Plugins:           []api.Plugin{packages(dir)},
	})
	if len(res.Errors) > 0 {
		return nil, messages(res.Errors)
	}
	var meta struct {
		Outputs map[string]struct {
			Inputs map[string]struct {
				BytesInOutput int `json:"bytesInOutput"`
			} `json:"inputs"`
		} `json:"outputs"`
	}
	if err := json.Unmarshal([]byte(res.Metafile), &meta); err != nil {
		return nil, err
	}
	out := map[string]bundle{}
	for _, f := range res.OutputFiles {
		rel, err := filepath.Rel(dir, f.Path)
		if err != nil {
			return nil, err
		}
		rel = filepath.ToSlash(rel)
		b := bundle{code: string(f.Contents)}
		for path, in := range meta.Outputs[rel].Inputs {
			b.inputs = append(b.inputs, input{path, in.BytesInOutput})
		}
		slices.SortFunc(b.inputs, func(x, y input) int { return cmp.Or(y.bytes-x.bytes, strings.Compare(x.path, y.path)) })
		out[outputs[rel]] = b
	}
	return out, nil
}

// packages resolves what is not a file: the modules of sandboxes stay imports, packages come from node_modules, and
// modules of Node.js are mistakes.
func packages(dir string) api.Plugin {
	type asked struct{}
	return api.Plugin{Name: "packages", Setup: func(b api.PluginBuild) {
		b.OnResolve(api.OnResolveOptions{Filter: `^[^./]`}, func(a api.OnResolveArgs) (api.OnResolveResult, error) {
			if _, again := a.PluginData.(asked); again || a.Kind == api.ResolveEntryPoint || filepath.IsAbs(a.Path) {
				return api.OnResolveResult{}, nil
			}
			imported := a.Kind == api.ResolveJSImportStatement || a.Kind == api.ResolveJSDynamicImport
			if imported && inspect.Library(a.Path) {
				return api.OnResolveResult{Path: a.Path, External: true}, nil
			}
			if strings.Contains(a.Path, "://") || strings.HasPrefix(a.Path, "data:") {
				return failure("%s cannot be imported: sandboxes have no network; use an npm package or a file", a.Path), nil
			}
			// A package may take the place of a module of Node.js, or say that browsers need none.
			found := b.Resolve(a.Path, api.ResolveOptions{Importer: a.Importer, Namespace: a.Namespace, ResolveDir: a.ResolveDir, Kind: a.Kind, PluginData: asked{}})
			switch {
			case len(found.Errors) == 0 && !found.External:
				return api.OnResolveResult{}, nil
			case inspect.NodeModule(a.Path):
				return failure("%s", inspect.NoNode(a.Path)), nil
			case strings.HasPrefix(a.Path, "#"), strings.HasPrefix(a.Path, "@/"), strings.HasPrefix(a.Path, "~"):
				return api.OnResolveResult{}, nil // esbuild says what it looked for
			}
			name := packageName(a.Path)
			if declared(dir, name) {
				return failure("the package %s is not installed: run `npm install` in %s", name, filepath.Base(dir)), nil
			}
			if installed(a.ResolveDir, name) {
				return api.OnResolveResult{}, nil
			}
			return failure("there is no package %s in node_modules: run `npm install %s` in %s", name, name, filepath.Base(dir)), nil
		})
	}}
}

func failure(format string, args ...any) api.OnResolveResult {
	return api.OnResolveResult{Errors: []api.Message{{Text: fmt.Sprintf(format, args...)}}}
}

// maxMessages bounds how many mistakes are named.
const maxMessages = 30

// messages returns an error that names all mistakes, each once.
func messages(list []api.Message) error {
	var all []error
	seen := map[string]bool{}
	for _, m := range list {
		text := m.Text
		if l := m.Location; l != nil {
			text = fmt.Sprintf("%s:%d:%d: %s", l.File, l.Line, l.Column+1, m.Text)
			if line := strings.TrimSpace(l.LineText); line != "" && len(line) <= 200 {
				text += "\n    " + line
			}
		}
		if seen[text] {
			continue
		}
		seen[text] = true
		all = append(all, errors.New(text))
	}
	if more := len(all) - maxMessages; more > 0 {
		all = append(all[:maxMessages], fmt.Errorf("and %d more", more))
	}
	return errors.Join(all...)
}
