//go:build linux && (amd64 || arm64)

package lockdown

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// notices tells whether the answer to a seccomp notification may be that the call goes on: since Linux 5.5. The
// notifications themselves are older (5.0), and before 5.5 nobody can be asked whether they can do it but by a call that
// waits for the answer. What a distribution has brought to an older kernel is not known, and not needed.
func notices() bool {
	var name unix.Utsname
	return unix.Uname(&name) != nil || !olderThan(unix.ByteSliceToString(name.Release[:]), 5, 5)
}

// olderThan compares a release of Linux, such as 5.4.0-150-generic, with a version. One that cannot be read is not older.
func olderThan(release string, major, minor int) bool {
	var has, and int
	if n, _ := fmt.Sscanf(release, "%d.%d", &has, &and); n != 2 {
		return false
	}
	return has < major || has == major && and < minor
}
