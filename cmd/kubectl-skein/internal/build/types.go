package build

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/skein-dev/skein/internal/sandbox/types"
)

// The values of --check.
const (
	CheckAuto   = "auto"
	CheckAlways = "always"
	CheckNever  = "never"
)

// ErrTypes is the error of code whose types do not fit.
var ErrTypes = errors.New("the types do not fit")

// CheckTypes has the TypeScript compiler check the files of a folder. With CheckAuto it returns why it did not, where there is
// no compiler; with CheckAlways that is an error.
func CheckTypes(ctx context.Context, dir, mode string, files []string) (skipped string, err error) {
	if mode == CheckNever || len(files) == 0 {
		return "", nil
	}
	dir, err = projectDir(dir)
	if err != nil {
		return "", err
	}
	args, tidy, why, err := typeCheck(dir, files)
	if err != nil {
		return "", err
	}
	defer tidy()
	if why != "" {
		if mode == CheckAlways {
			return "", errors.New(why)
		}
		return why + "; types are not checked", nil
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "", nil
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case errors.As(err, &exit) && len(out) > 0:
		return "", fmt.Errorf("%w:\n%s", ErrTypes, strings.TrimSpace(string(out)))
	}
	return "", fmt.Errorf("%s: %w", strings.Join(args, " "), err)
}

// typeCheck returns the command that checks the types, or why there is none.
func typeCheck(dir string, files []string) (args []string, tidy func(), why string, err error) {
	tidy = func() {}
	tsc := inModules(dir, filepath.Join(".bin", "tsc"))
	if tsc == "" {
		if tsc, err = exec.LookPath("tsc"); err != nil {
			return nil, tidy, "there is no TypeScript compiler: run `npm install --save-dev typescript zod`", nil
		}
	}
	if config := filepath.Join(dir, "tsconfig.json"); exists(config) {
		return []string{tsc, "--noEmit", "--pretty", "false", "-p", config}, tidy, "", nil
	}
	modules := inModules(dir, "zod")
	if modules == "" {
		return nil, tidy, "the types of definitions need the package zod: run `npm install --save-dev zod`", nil
	}
	// Beside the packages, so that the declarations find those that they need.
	folder, err := os.MkdirTemp(filepath.Dir(modules), ".skein-types-")
	if err != nil {
		return nil, tidy, "", err
	}
	tidy = func() { _ = os.RemoveAll(folder) }
	include, own, err := declarations(dir)
	if err != nil {
		return nil, tidy, "", err
	}
	for name, text := range map[string]string{"skein.d.ts": types.Builder, "handlers.d.ts": types.Handlers, "globals.d.ts": types.Globals} {
		if own[name] { // printed by kubectl skein types
			continue
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			return nil, tidy, "", err
		}
		include = append(include, filepath.Join(folder, name))
	}
	for _, f := range files {
		include = append(include, filepath.Join(dir, f))
	}
	config, err := json.Marshal(map[string]any{
		"files": include,
		"compilerOptions": map[string]any{
			"strict": true, "noEmit": true, "target": "es2023", "lib": []string{"es2023"}, "module": "esnext", "moduleResolution": "bundler",
			"moduleDetection": "force", "types": []string{}, "skipLibCheck": true, "allowJs": true, "resolveJsonModule": true, "allowImportingTsExtensions": true,
		},
	})
	if err != nil {
		return nil, tidy, "", err
	}
	path := filepath.Join(folder, "tsconfig.json")
	return []string{tsc, "--noEmit", "--pretty", "false", "-p", path}, tidy, "", os.WriteFile(path, config, 0o644)
}

// declarations returns the declarations that a project has outside of its packages, by their paths and by their names.
func declarations(dir string) (paths []string, names map[string]bool, err error) {
	names = map[string]bool{}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != dir && (d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(path, ".d.ts"):
			paths, names[d.Name()] = append(paths, path), true
		}
		return nil
	})
	return paths, names, err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
