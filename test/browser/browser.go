// Package browser opens pages in a headless Chromium, for specs. Each process of tests has one Chromium, and each Page is a tab with cookies
// and storage of its own. No request leaves the machine. A spec fails when a page of it has an error that the spec does not expect.
//
// A suite that uses it stops Chromium at its end:
//
//	var _ = BeforeSuite(func() { DeferCleanup(browser.Stop) })
package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/skein-dev/skein/internal/sourceroot"
)

// stopLimit bounds how long Chromium may take to end by itself.
const stopLimit = 20 * time.Second

// chromium is a Chromium that runs.
type chromium struct {
	ctx    context.Context // pages are made from it
	dir    string          // all that Chromium writes is here
	cancel func()          // kills it, and waits until it has ended
}

var (
	mu      sync.Mutex // guards running
	running *chromium
)

// current returns the Chromium of this process, and starts it when there is none. ctx bounds the start only.
func current(ctx context.Context) (*chromium, error) {
	mu.Lock()
	defer mu.Unlock()
	if running != nil && running.ctx.Err() == nil {
		return running, nil
	}
	if running != nil { // it has crashed
		if err := running.remove(); err != nil {
			return nil, err
		}
	}
	c, err := start(ctx)
	if err != nil {
		return nil, fmt.Errorf("start Chromium: %w", err)
	}
	running = c
	return c, nil
}

// Stop ends Chromium with all its processes, and removes its files. It does nothing when Chromium does not run.
func Stop() error {
	mu.Lock()
	defer mu.Unlock()
	if running == nil {
		return nil
	}
	c := running
	running = nil
	return c.stop()
}

// start starts Chromium with an empty profile.
func start(ctx context.Context) (*chromium, error) {
	program, err := script("chromium.sh", "bin")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "skein-browser-")
	if err != nil {
		return nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program),
		chromedp.DisableGPU,
		// The pages are those of the specs, and a container may forbid what this sandbox needs.
		chromedp.NoSandbox,
		chromedp.WindowSize(1280, 800),
		chromedp.Flag("lang", "en-US"),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-domain-reliability", true),
		// Every name is unknown, and so is every address but that of the specs' servers. A proxy would be asked before.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost"),
		chromedp.Flag("no-proxy-server", true),
		chromedp.NoInheritEnv,
		chromedp.Env("PATH="+os.Getenv("PATH"), "HOME="+dir, "TMPDIR="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir, "LANG=C.UTF-8", "TZ=UTC"),
		chromedp.ModifyCmdFunc(func(cmd *exec.Cmd) {
			// An interrupt of the tests must not reach it, so that specs clean up. Should the tests be killed, it must not outlive them.
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		}),
	)
	base, abort := context.WithCancel(context.Background())
	allocator, endAllocator := chromedp.NewExecAllocator(base, options...)
	root, endRoot := chromedp.NewContext(allocator)
	c := &chromium{ctx: root, dir: dir, cancel: sync.OnceFunc(func() { abort(); endRoot(); endAllocator() })}
	stop := context.AfterFunc(ctx, abort)
	err = chromedp.Do(root)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.remove())
	}
	return c, nil
}

// stop asks Chromium to end, kills what still runs after a while, and removes its files.
func (c *chromium) stop() error {
	ctx, cancel := context.WithTimeout(c.ctx, stopLimit)
	defer cancel()
	err := chromedp.Cancel(ctx)
	if errors.Is(err, context.Canceled) { // it has ended already
		err = nil
	}
	return errors.Join(err, c.remove())
}

// remove kills Chromium where it still runs, and removes its files.
func (c *chromium) remove() error {
	c.cancel()
	return os.RemoveAll(c.dir)
}

// script runs a script of hack and returns what it prints.
func script(name string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(sourceroot.Dir(), "hack", name), args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("hack/%s: %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// process returns the process of Chromium.
func (c *chromium) process() *os.Process { return chromedp.FromContext(c.ctx).Browser.Process() }
