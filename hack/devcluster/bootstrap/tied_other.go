//go:build !linux

package main

import (
	"context"
	"errors"
	"io"
	"os/exec"
)

func tie(*exec.Cmd) {}

func runTied(cmd *exec.Cmd) error { return cmd.Run() }

func outputTied(cmd *exec.Cmd) ([]byte, error) { return cmd.Output() }

// availableMemory returns 0, which means unknown.
func availableMemory() int64 { return 0 }

func useHugePages(io.Writer) (restore func()) { return func() {} }

func withHugePages(context.Context, io.Writer, []string) error {
	return errors.New("huge-pages is for Linux")
}
