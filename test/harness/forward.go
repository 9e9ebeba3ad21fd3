package harness

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
)

// Forward reaches a port of a pod from here, whatever its NetworkPolicies say: the kubelet connects from inside of the
// pod. It gives an address on loopback and what ends it.
func (c *Cluster) Forward(ctx context.Context, namespace, pod string, port int) (address string, stop func(), err error) {
	cmd := exec.CommandContext(ctx, c.kubectl, "--kubeconfig", c.Kubeconfig, "-n", namespace, "port-forward", "pod/"+pod, fmt.Sprintf(":%d", port), "--address=127.0.0.1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	rest, ok := strings.CutPrefix(line, "Forwarding from ")
	if err != nil || !ok {
		stop()
		return "", nil, fmt.Errorf("kubectl port-forward %s/%s %d: %q %s", namespace, pod, port, line, said.String())
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }() // a line for each connection
	address, _, _ = strings.Cut(rest, " ")
	return address, stop, nil
}
