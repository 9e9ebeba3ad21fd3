package main

import "testing"

func TestPathsInThreads(t *testing.T) {
	for arg, want := range map[string]location{
		"orders:/a.txt":      {"orders", "/a.txt"},
		"orders.v2:/a.txt":   {"orders.v2", "/a.txt"},
		"T-6F1C2A54:b":       {"T-6F1C2A54", "b"},
		"orders:":            {"orders", ""},
		"orders":             {},
		":/a.txt":            {},
		"./a:b":              {},
		"../a:b":             {},
		"..:b":               {},
		"folder/a.txt:b":     {},
		`folder\a.txt:b`:     {},
		"/var/lib/orders:/b": {},
	} {
		got, remote := remotePath(arg)
		if got != want || remote != (want.thread != "") {
			t.Errorf("%s is in the thread %q at %q (%v), want %+v", arg, got.thread, got.path, remote, want)
		}
	}
}
