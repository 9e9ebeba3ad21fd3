//go:build !linux

package cli

import "syscall"

// endWithParent needs Linux; elsewhere a killed up leaves the cluster to down.
func endWithParent(*syscall.SysProcAttr) {}
