//go:build linux && (amd64 || arm64)

package lockdown

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// notices reports whether the answer to a seccomp notification can be that the call continues, which Linux 5.5
// introduced. The notifications themselves are older (5.0). Before 5.5 the only way to find out is a call that waits
// for the answer. Backports of distributions to older kernels are not recognised, and not needed.
func notices() bool {
	var name unix.Utsname
	return unix.Uname(&name) != nil || !olderThan(unix.ByteSliceToString(name.Release[:]), 5, 5)
}

// olderThan compares a release of Linux, such as 5.4.0-150-generic, with a version. A release that cannot be parsed
// is not older.
func olderThan(release string, major, minor int) bool {
	var has, and int
	if n, _ := fmt.Sscanf(release, "%d.%d", &has, &and); n != 2 {
		return false
	}
	return has < major || has == major && and < minor
}
