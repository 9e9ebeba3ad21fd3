package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

func newCode(p *plugin) *cobra.Command {
	var file, fn, output string
	var args []string
	var wallTime time.Duration
	cmd := &cobra.Command{
		Use:   "code THREAD -f FILE",
		Short: "Run TypeScript or JavaScript in the thread's sandbox, apart from the conversation",
		Long: `Run TypeScript or JavaScript in the thread's sandbox, apart from the conversation.

The result goes to standard output as JSON, what the code logs to standard error.`,
		Example: `  # Call the default export with an argument
  kubectl skein code hello -f sum.ts --arg '[1,2,3]'`,
		Args: exactly("THREAD"),
		RunE: func(cmd *cobra.Command, positional []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			req, err := codeRequest(p.In, file, fn, args, wallTime)
			if err != nil {
				return err
			}
			t, err := p.thread(positional[0])
			if err != nil {
				return err
			}
			result, err := t.ExecuteCode(cmd.Context(), *req)
			if err != nil {
				return err
			}
			return p.showResult(result, output)
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "The file with the code; - for standard input.")
	cmd.Flags().StringVar(&fn, "fn", "", "The export to call; the default export when absent.")
	cmd.Flags().StringArrayVar(&args, "arg", nil, "An argument, as JSON; may be given more than once.")
	cmd.Flags().DurationVar(&wallTime, "wall-time", 0, "How long the code may take; the pool's cap when absent.")
	cmd.Flags().StringVarP(&output, "output", "o", "", "Print all of the outcome, as json or yaml.")
	return cmd
}

func codeRequest(in io.Reader, file, fn string, args []string, wallTime time.Duration) (*runtimev1.CodeRequest, error) {
	var source []byte
	var err error
	switch file {
	case "":
		return nil, errors.New("give the file with the code: -f FILE, or -f - for standard input")
	case "-":
		source, err = io.ReadAll(io.LimitReader(in, runtimev1.MaxBodyBytes))
	default:
		source, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, err
	}
	req := &runtimev1.CodeRequest{Source: string(source)}
	if file != "-" {
		req.Filename = filepath.Base(file)
	}
	switch filepath.Ext(file) {
	case ".js", ".mjs":
		req.Language = "javascript"
	}
	if fn != "" || len(args) > 0 {
		req.Execute = &runtimev1.CodeExecute{Fn: fn}
	}
	for _, a := range args {
		if !json.Valid([]byte(a)) {
			return nil, fmt.Errorf("--arg=%s is not JSON; quote a text: --arg '\"text\"'", a)
		}
		req.Execute.Args = append(req.Execute.Args, json.RawMessage(a))
	}
	if wallTime != 0 {
		req.WallTime = &metav1.Duration{Duration: wallTime}
	}
	return req, nil
}

func (p *plugin) showResult(r *runtimev1.CodeResult, output string) error {
	if output != "" {
		if err := encode(p.Out, output, r); err != nil {
			return err
		}
		return failure(r)
	}
	for _, l := range r.Logs {
		fmt.Fprintf(p.ErrOut, "%s: %s\n", l.Level, safe(l.Message))
	}
	for _, rep := range r.Reports {
		fmt.Fprintf(p.ErrOut, "report: %s\n", rep)
	}
	if r.Result != nil {
		if err := encode(p.Out, "json", r.Result); err != nil {
			return err
		}
	}
	return failure(r)
}

// failure gives the error of code that did not succeed.
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
