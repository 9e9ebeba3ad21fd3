package cli

import "syscall"

// endWithParent makes the supervisor stop when an up in the foreground is killed. The kernel sends the signal when
// the starting thread ends, so the caller must be locked to its thread.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGTERM }
