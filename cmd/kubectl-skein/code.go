package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

func newCode(p *plugin) *cobra.Command {
	f := codeFlags{}
	cmd := &cobra.Command{
		Use:     "code THREAD -f FILE",
		Aliases: []string{"run-code"},
		Short:   "Run TypeScript or JavaScript in the thread's sandbox, apart from the conversation",
		Long: `Run TypeScript or JavaScript in the thread's sandbox, apart from the conversation.

Logs and reports of the code go to standard error as they arrive. The result goes to standard output as JSON.
An interrupt (Ctrl-C) ends the code.`,
		Example: `  # Call the default export with an argument
  kubectl skein code hello -f sum.ts --arg '[1,2,3]'

  # With a module beside it, and a value as a global
  kubectl skein code hello -f main.ts --module ./lib.ts --global limit=5`,
		Args: exactly("THREAD"),
		RunE: func(cmd *cobra.Command, positional []string) error {
			if err := checkOutput(f.output); err != nil {
				return err
			}
			source, o, err := f.options(p.In)
			if err != nil {
				return err
			}
			t, err := p.thread(positional[0])
			if err != nil {
				return err
			}
			return p.runCode(cmd.Context(), t, source, o, f.output)
		},
	}
	cmd.Flags().StringVarP(&f.file, "filename", "f", "", "The file with the code; - for standard input.")
	cmd.Flags().StringVar(&f.fn, "fn", "", "The export to call. The default is the default export.")
	cmd.Flags().StringArrayVar(&f.args, "arg", nil, "An argument, as JSON. You can repeat this flag.")
	cmd.Flags().StringArrayVar(&f.globals, "global", nil, "A global, as NAME=JSON. You can repeat this flag.")
	cmd.Flags().StringArrayVar(&f.modules, "module", nil, "A file that the code imports, by its path relative to the code's file. You can repeat this flag.")
	cmd.Flags().Var((*quantity)(&f.memory), "memory-limit", "Memory that the code may use, such as 16Mi; the pool's default when absent.")
	cmd.Flags().DurationVar(&f.wallTime, "wall-time", 0, "How long the code may take. The default is the pool's limit.")
	cmd.Flags().StringVarP(&f.output, "output", "o", "", "Print the whole outcome, as json or yaml.")
	return cmd
}

// runCode runs code and prints its logs and reports as they come.
func (p *plugin) runCode(ctx context.Context, t *runtimeclient.Thread, source string, o runtimeclient.CodeOptions, output string) error {
	if output == "" {
		o.Log = func(l runtimev1.CodeLog) { fmt.Fprintf(p.ErrOut, "%s: %s\n", l.Level, safe(l.Message)) }
		o.Report = func(v json.RawMessage) { fmt.Fprintf(p.ErrOut, "report: %s\n", safe(string(v))) }
	}
	ctx, cancel, err := p.bounded(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	stop, err := p.explainSandbox(ctx, t)
	if err != nil {
		return err
	}
	defer stop()
	run := t.RunCode(context.WithoutCancel(ctx), source, o)
	defer context.AfterFunc(ctx, func() { run.Terminate("interrupted") })()
	result, err := run.Wait(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	if ctx.Err() != nil && result.Status == runtimev1.CodeTerminated {
		return context.Cause(ctx)
	}
	if output != "" {
		err = encode(p.Out, output, result)
	} else if result.Result != nil {
		err = encode(p.Out, "json", result.Result)
	}
	if err != nil {
		return err
	}
	return failure(result)
}

// codeFlags are the flags of the command code.
type codeFlags struct {
	file, fn, output       string
	args, globals, modules []string
	memory                 resource.Quantity
	wallTime               time.Duration
}

// quantity is a flag with the syntax of Kubernetes resource quantities.
type quantity resource.Quantity

func (q *quantity) String() string { return (*resource.Quantity)(q).String() }
func (q *quantity) Type() string   { return "quantity" }
func (q *quantity) Set(s string) error {
	v, err := resource.ParseQuantity(s)
	if err != nil || v.Sign() <= 0 {
		return errors.New("it must be a size above 0 such as 16Mi")
	}
	*q = quantity(v)
	return nil
}

// options reads the files and the values that the flags name.
func (f *codeFlags) options(in io.Reader) (source string, o runtimeclient.CodeOptions, err error) {
	o = runtimeclient.CodeOptions{Fn: f.fn, WallTime: f.wallTime, MemoryLimitBytes: f.memory.Value()}
	var text []byte
	switch f.file {
	case "":
		return "", o, errors.New("give the file with the code: -f FILE, or -f - for standard input")
	case "-":
		text, err = io.ReadAll(io.LimitReader(in, runtimev1.MaxCodeMessageBytes))
	default:
		text, err = os.ReadFile(f.file)
		o.Filename = filepath.Base(f.file)
	}
	if err != nil {
		return "", o, err
	}
	switch filepath.Ext(f.file) {
	case ".js", ".mjs":
		o.Language = "javascript"
	}
	for _, a := range f.args {
		if !json.Valid([]byte(a)) {
			return "", o, fmt.Errorf("--arg=%s is not JSON; quote a text: --arg '\"text\"'", a)
		}
		o.Args = append(o.Args, json.RawMessage(a))
	}
	for _, g := range f.globals {
		name, v, ok := strings.Cut(g, "=")
		if !ok || !json.Valid([]byte(v)) {
			return "", o, fmt.Errorf("--global=%s is not NAME=JSON; quote a text: --global 'name=\"text\"'", g)
		}
		if o.Globals == nil {
			o.Globals = map[string]any{}
		}
		o.Globals[name] = json.RawMessage(v)
	}
	o.Modules, err = f.readModules()
	return string(text), o, err
}

// readModules reads the modules and returns them by the paths with which the code imports them.
func (f *codeFlags) readModules() (map[string]string, error) {
	var out map[string]string
	base := "."
	if f.file != "-" {
		base = filepath.Dir(f.file)
	}
	for _, file := range f.modules {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name, err := filepath.Rel(base, file)
		if err != nil {
			return nil, err
		}
		if out == nil {
			out = map[string]string{}
		}
		out["./"+filepath.ToSlash(name)] = string(text)
	}
	return out, nil
}

// failure returns an error for code that did not succeed, else nil.
func failure(r *runtimev1.CodeResult) error {
	if r.Status == runtimev1.CodeSuccess {
		return nil
	}
	text := "the code ended as " + r.Status
	if e := r.Error; e != nil {
		text += ": " + e.Name + ": " + e.Message
		if e.Line > 0 {
			text += fmt.Sprintf(" (line %d, column %d)", e.Line, e.Column)
		}
		if e.Stack != "" {
			text += "\n" + e.Stack
		}
	}
	return errors.New(safe(text))
}
