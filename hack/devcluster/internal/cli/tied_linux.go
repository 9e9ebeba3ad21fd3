package cli

import "syscall"

// endWithParent lets the supervisor stop when the up that stays in the foreground is killed. The signal comes with the end
// of the starting thread, so the caller must be locked to its own.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGTERM }
