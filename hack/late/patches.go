package main

import _ "embed"

// patch is a change of one package of the standard library: a new file, and lines that call functions in it.
type patch struct {
	added, text string // the new file below GOROOT/src, and its text
	file        string // the file that calls it
	changes     []change
}

// change inserts lines after a text that the file contains once.
type change struct{ after, insert string }

//go:embed runtime.txt
var lateRuntime string

//go:embed poll.txt
var latePoll string

// One start of a goroutine in 40, one close in 20 and one read or write in 200 are delayed. That is enough for most
// tests to meet some delays, and so few that a suite takes minutes, not hours. Delays are distributed evenly up to
// the maximum.
var patches = []patch{
	{
		added: "runtime/late.go", text: lateRuntime, file: "runtime/proc.go",
		changes: []change{
			{after: "func newproc(fn *funcval) {\n\tgp := getg()\n\tpc := sys.GetCallerPC()\n", insert: "\tfn = lateStart(gp, pc, fn, 40)\n"},
		},
	},
	{
		added: "internal/poll/late_unix.go", text: latePoll, file: "internal/poll/fd_unix.go",
		changes: []change{
			{after: "func (fd *FD) Close() error {\n", insert: "\tlateDelay(20)\n"},
			{after: "func (fd *FD) Read(p []byte) (int, error) {\n", insert: "\tdefer lateDelay(200)\n"},
			{after: "func (fd *FD) Write(p []byte) (int, error) {\n", insert: "\tlateDelay(200)\n"},
		},
	},
}
