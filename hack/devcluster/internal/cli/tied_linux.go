package cli

import "syscall"

// endWithParent lets the supervisor stop when the up that stays in the foreground is killed. The caller's main goroutine
// never leaves the main thread before it ends.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGTERM }
