// The containerd shim of gVisor, for machines on which root lacks SYS_RESOURCE and so cannot make the kernel spare a
// process when memory is short. The upstream shim fails there.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/shim"
	v1 "gvisor.dev/gvisor/pkg/shim/v1"
	_ "gvisor.dev/gvisor/pkg/shim/v1/plugin" // what the shim serves
)

func main() {
	shim.Run(context.Background(), manager{v1.NewShimManager("io.containerd.runsc.v1")})
}

// manager is the upstream manager with a different start of the process that serves a pod. Each container has its
// own.
type manager struct{ shim.Manager }

// spared is the OOM score adjustment of a shim, where it can be set: the kernel almost never kills it.
const spared = -999

// Start starts the serving process and returns its address. The working folder is the container's bundle.
func (m manager) Start(ctx context.Context, id string, opts shim.StartOpts) (shim.BootstrapParams, error) {
	params := shim.BootstrapParams{Version: 2, Protocol: "ttrpc"}
	namespace, err := namespaces.NamespaceRequired(ctx)
	if err != nil {
		return params, err
	}
	if params.Address, err = shim.SocketAddress(ctx, opts.Address, id, opts.Debug); err != nil {
		return params, err
	}
	pid, err := serve(params.Address, "-namespace", namespace, "-address", opts.Address, "-id", id)
	if err != nil {
		return params, err
	}
	err = errors.Join(
		shim.WritePidFile("shim.pid", pid),
		os.WriteFile("address", []byte(params.Address), 0o644),
		spare(pid),
	)
	if err != nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		_ = shim.RemoveSocket(params.Address)
	}
	return params, err
}

// serve starts this program again with a listening socket.
func serve(address string, args ...string) (pid int, err error) {
	socket, err := shim.NewSocket(address)
	if shim.SocketEaddrinuse(err) { // left by a shim that crashed
		if err := shim.RemoveSocket(address); err != nil {
			return 0, err
		}
		socket, err = shim.NewSocket(address)
	}
	if err != nil {
		return 0, fmt.Errorf("listening on %s: %w", address, err)
	}
	file, err := socket.File()
	if err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	cmd.ExtraFiles = []*os.File{file}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	go func() { _ = cmd.Wait() }() // it usually outlives this process
	return cmd.Process.Pid, nil
}

func spare(pid int) error {
	err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(spared)), 0)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}
