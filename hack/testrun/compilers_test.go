package main

import (
	"slices"
	"testing"
)

func TestCompilersHaveSettingsOfTheirOwn(t *testing.T) {
	for _, name := range []string{"GOMAXPROCS", "GOGC", "GOMEMLIMIT"} {
		t.Setenv(name, "")
	}
	for available, want := range map[uint64][]string{
		24 << 30: {"GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=2147483648"},
		8 << 30:  {"GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=1073741824"},
		4 << 30:  {"GOMAXPROCS=1"},
		0:        {"GOMAXPROCS=1"},
	} {
		got := compilerEnv(available)
		if !slices.Equal(got[:len(got)-1], want) {
			t.Errorf("with %d bytes: %q, want %q", available, got, want)
		}
		if left := withoutCompilerEnv(append([]string{"HOME=/home/x"}, got...)); !slices.Equal(left, []string{"HOME=/home/x"}) {
			t.Errorf("a test program gets %q", left)
		}
	}
	t.Setenv("GOMAXPROCS", "2")
	t.Setenv("GOMEMLIMIT", "3GiB")
	got := compilerEnv(24 << 30)
	if !slices.Equal(got, []string{envCompilers + "="}) {
		t.Errorf("settings of the caller are replaced: %q", got)
	}
	own := []string{"GOMAXPROCS=2", "GOMEMLIMIT=3GiB"}
	if left := withoutCompilerEnv(append(slices.Clone(own), got...)); !slices.Equal(left, own) {
		t.Errorf("a test program does not get the settings of the caller: %q", left)
	}
}
