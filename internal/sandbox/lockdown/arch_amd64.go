package lockdown

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

var archRules = []rule{{call: unix.SYS_EPOLL_WAIT}, {call: unix.SYS_TIME}}

var archEngineRules = []rule{
	{call: unix.SYS_POLL},
	{call: unix.SYS_ARCH_PRCTL, gated: true}, {call: unix.SYS_OPEN, gated: true}, {call: unix.SYS_STAT, gated: true},
	{call: unix.SYS_LSTAT, gated: true}, {call: unix.SYS_ACCESS, gated: true}, {call: unix.SYS_READLINK, gated: true},
	{call: unix.SYS_DUP2, gated: true}, {call: unix.SYS_GETRLIMIT, gated: true},
}
