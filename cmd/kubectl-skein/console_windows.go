package main

import (
	"os/exec"
	"syscall"
)

// inOwnGroup keeps the interrupts of the terminal from a program that the command starts.
func inOwnGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
