package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// demo holds what the steps share.
type demo struct {
	root       string // the root of the repository
	state      string // a folder for the files of a running demo
	cluster    string // the name of the cluster
	kubeconfig string
	kubernetes string // the folder with the cluster's programs, kubectl among them
	env        []string
	colour     bool
	node       bool
	model      *realModel // nil means the scripted ones
	total      string     // the sum of the paid orders, as the demo computes it
}

const (
	namespace  = "demo"
	threadName = "orders"
)

func newDemo() (*demo, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(root, "config", "samples")); err != nil {
		return nil, fmt.Errorf("run it with `make demo` in the repository's root: %w", err)
	}
	d := &demo{root: root, state: filepath.Join(root, "build", "demo-state"), cluster: os.Getenv("SKEIN_DEMO_CLUSTER"), env: os.Environ()}
	if d.cluster == "" {
		d.cluster = "demo"
	}
	if fi, err := os.Stdout.Stat(); err == nil && fi.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" {
		d.colour = true
	}
	d.model, err = modelFromEnv(os.Getenv)
	return d, err
}

// say prints a line of the demo itself.
func (d *demo) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if d.colour {
		text = "\033[1;36m" + text + "\033[0m"
	}
	fmt.Printf("\n%s\n", text)
}

// show prints a command as the user would type it.
func (d *demo) show(args ...string) {
	text := "$ " + quote(args)
	if d.colour {
		text = "\033[1m" + text + "\033[0m"
	}
	fmt.Println(text)
}

func quote(args []string) string {
	out := make([]string, 0, len(args))
	for _, a := range args {
		if a == "" || strings.ContainsAny(a, " \t\n'\"$*?{}[]()<>|&;\\") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		out = append(out, a)
	}
	return strings.Join(out, " ")
}

// command returns a command that runs in the repository's root. It has its own process group and gets an interrupt
// through ctx, so that commands that clean up are not interrupted too.
func (d *demo) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = d.root, d.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 40 * time.Second
	return cmd
}

// run prints a command and runs it. Its output goes to the terminal.
func (d *demo) run(ctx context.Context, args ...string) error {
	d.show(args...)
	return d.quietly(ctx, nil, os.Stdout, args...)
}

// quietly runs a command without printing it.
func (d *demo) quietly(ctx context.Context, in io.Reader, out io.Writer, args ...string) error {
	cmd := d.command(ctx, d.program(args)...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout = in, out
	cmd.Stderr = io.MultiWriter(&stderr, out)
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%s: %w: %s", quote(args), err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// output runs a command and returns its output.
func (d *demo) output(ctx context.Context, args ...string) (string, error) {
	cmd := d.command(ctx, d.program(args)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", quote(args), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// program finds kubectl in the demo's PATH, which differs from this process's.
func (d *demo) program(args []string) []string {
	if strings.Contains(args[0], "/") {
		return args
	}
	for _, e := range d.env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok {
			for _, dir := range filepath.SplitList(path) {
				p := filepath.Join(dir, args[0])
				if fi, err := os.Stat(p); err == nil && !fi.IsDir() && fi.Mode()&0o111 != 0 {
					return append([]string{p}, args[1:]...)
				}
			}
		}
	}
	return args
}

// setenv sets a variable for every later command. The last value of a name counts.
func (d *demo) setenv(name, value string) { d.env = append(d.env, name+"="+value) }

// poll calls done until it returns true. The last error of done explains a timeout.
func poll(ctx context.Context, patience, every time.Duration, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		ok, err := done()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = ctx.Err()
			}
			return fmt.Errorf("%s: not within %s: %w", what, patience, err)
		case <-tick.C:
		}
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
