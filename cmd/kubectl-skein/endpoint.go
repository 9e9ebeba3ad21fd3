package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// endpointOptions are the flags of a request.
type endpointOptions struct {
	method, data string
	headers      []string
	include      bool
}

func newEndpoint(p *plugin) *cobra.Command {
	var o endpointOptions
	cmd := &cobra.Command{
		Use:   "endpoint THREAD PATH",
		Short: "Make a request to an endpoint of a thread and print the answer",
		Long: `Make a request to an endpoint of a thread and print the answer.

PATH is the spec.path of a ThreadEndpoint object of the namespace, with values for its parameters. It may have a query:
/report/7?format=csv. The command prints an answer with a status of 400 or more too, and then fails. While the request waits
for a sandbox, the command prints the reason to standard error.`,
		Example: `  # Read a report
  kubectl skein endpoint orders /report/march

  # Send a file
  kubectl skein endpoint orders /orders -d @orders.csv -H 'Content-Type: text/csv'`,
		Args: exactly("THREAD", "PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := o.request(p.In, args[1])
			if err != nil {
				return err
			}
			t, err := p.thread(args[0])
			if err != nil {
				return err
			}
			stop, err := p.explainSandbox(cmd.Context(), t)
			if err != nil {
				return err
			}
			resp, err := t.Endpoint(cmd.Context(), *req)
			stop()
			if err != nil {
				return err
			}
			defer func() { _ = resp.Body.Close() }()
			return p.showAnswer(resp, o.include)
		},
	}
	cmd.Flags().StringVarP(&o.method, "method", "X", "", "The method. The default is GET, or POST with a body.")
	cmd.Flags().StringVarP(&o.data, "data", "d", "", "The body: a text, @FILE, or @- for standard input.")
	cmd.Flags().StringArrayVarP(&o.headers, "header", "H", nil, "A header, as 'Name: value'. You can repeat this flag.")
	cmd.Flags().BoolVarP(&o.include, "include", "i", false, "Print the status and the headers of the answer first.")
	return cmd
}

func (o *endpointOptions) request(in io.Reader, path string) (*runtimeclient.EndpointRequest, error) {
	u, err := url.Parse(path)
	if err != nil || u.Host != "" {
		return nil, fmt.Errorf("%q is not a path: use one such as /report/7?format=csv", path)
	}
	req := &runtimeclient.EndpointRequest{Method: strings.ToUpper(o.method), Path: u.Path, Query: u.Query(), Header: http.Header{}}
	for _, h := range o.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return nil, fmt.Errorf("--header=%s is not a header; use one such as 'Content-Type: text/csv'", h)
		}
		req.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	if o.data == "" {
		return req, nil
	}
	body, err := o.body(in)
	if err != nil {
		return nil, err
	}
	switch req.Method {
	case "":
		req.Method = http.MethodPost
	case http.MethodGet, http.MethodHead:
		return nil, fmt.Errorf("a request with %s has no body: leave out --data, or give another --method", req.Method)
	}
	if req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Body = bytes.NewReader(body)
	return req, nil
}

func (o *endpointOptions) body(in io.Reader) ([]byte, error) {
	file, isFile := strings.CutPrefix(o.data, "@")
	switch {
	case !isFile:
		return []byte(o.data), nil
	case file == "-":
		return io.ReadAll(in)
	}
	return os.ReadFile(file)
}

func (p *plugin) showAnswer(resp *http.Response, include bool) error {
	if include {
		fmt.Fprintln(p.Out, resp.Status)
		for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
			for _, v := range resp.Header[name] {
				fmt.Fprintf(p.Out, "%s: %s\n", safe(name), safe(v))
			}
		}
		fmt.Fprintln(p.Out)
	}
	out := p.Out
	if isTerminal(p.Out) { // control characters in the output of code must not reach the terminal
		out = &safeWriter{to: p.Out}
	}
	if _, err := io.Copy(out, resp.Body); err != nil {
		return fmt.Errorf("the answer was cut off: %w", err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return errors.New("the endpoint " + safe(resp.Header.Get(runtimev1.HeaderEndpoint)) + " answered " + safe(resp.Status))
	}
	return nil
}
