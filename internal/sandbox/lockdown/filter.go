//go:build linux && (amd64 || arm64)

package lockdown

import (
	"golang.org/x/sys/unix"
)

// rule allows a system call when its condition holds. A gated one is allowed only while the Gate is open.
type rule struct {
	call  uint32
	when  condition
	gated bool
}

// condition tests one argument of a system call. It sees only the low 32 bits.
type condition struct {
	kind     conditionKind
	argument int
	value    uint32
	values   []uint32 // of oneOf
}

type conditionKind int

const (
	always   conditionKind = iota
	equals                 // argument == value
	hasAll                 // argument & value != 0, for a single bit
	lacksAll               // argument & value == 0
	oneOf                  // argument is one of values
)

// rules returns the allow-list: what the Go runtime needs to schedule, allocate and sleep, and what reading and
// writing open pipes needs; nothing else.
func rules(pid uint32) []rule {
	noExec := condition{kind: lacksAll, argument: 2, value: unix.PROT_EXEC}
	common := []rule{
		{call: unix.SYS_READ}, {call: unix.SYS_WRITE}, {call: unix.SYS_CLOSE},
		{call: unix.SYS_FUTEX}, {call: unix.SYS_NANOSLEEP}, {call: unix.SYS_CLOCK_NANOSLEEP}, {call: unix.SYS_SCHED_YIELD}, {call: unix.SYS_RESTART_SYSCALL},
		{call: unix.SYS_CLOCK_GETTIME}, {call: unix.SYS_GETTIMEOFDAY}, {call: unix.SYS_GETRANDOM}, {call: unix.SYS_SCHED_GETAFFINITY},
		{call: unix.SYS_RT_SIGACTION}, {call: unix.SYS_RT_SIGPROCMASK}, {call: unix.SYS_RT_SIGRETURN}, {call: unix.SYS_SIGALTSTACK},
		{call: unix.SYS_GETPID}, {call: unix.SYS_GETTID}, {call: unix.SYS_EXIT}, {call: unix.SYS_EXIT_GROUP},
		{call: unix.SYS_EPOLL_PWAIT}, {call: unix.SYS_EPOLL_CTL}, {call: unix.SYS_MADVISE}, {call: unix.SYS_MUNMAP}, {call: unix.SYS_MREMAP},
		// Threads of a build with cgo set these up for themselves, and report why when they cannot.
		{call: unix.SYS_RSEQ}, {call: unix.SYS_SET_ROBUST_LIST}, {call: unix.SYS_WRITEV},
		// The runtime preempts its own threads with signals. No other process gets one.
		{call: unix.SYS_TGKILL, when: condition{kind: equals, argument: 0, value: pid}},
		// More threads, but no processes.
		{call: unix.SYS_CLONE, when: condition{kind: hasAll, argument: 0, value: unix.CLONE_THREAD}},
		// More memory, but none that is executable.
		{call: unix.SYS_MMAP, when: noExec}, {call: unix.SYS_MPROTECT, when: noExec},
	}
	return append(common, archRules...)
}

// keeperRules are for a process that keeps another one: it waits for that process, kills it through its pid
// descriptor, and reads files that it has open.
var keeperRules = []rule{{call: unix.SYS_WAITID}, {call: unix.SYS_WAIT4}, {call: unix.SYS_PIDFD_SEND_SIGNAL}, {call: unix.SYS_PREAD64}}

const (
	retAllow  = unix.SECCOMP_RET_ALLOW
	retDeny   = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	retAbsent = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	retKill   = unix.SECCOMP_RET_KILL_PROCESS
	retAsk    = unix.SECCOMP_RET_USER_NOTIF
	retTrace  = unix.SECCOMP_RET_TRACE
)

// Offsets in struct seccomp_data. Both architectures are little endian.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func ret(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}

func jump(op uint16, k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jt: yes, Jf: no, K: k}
}

// filter returns the program: first it checks the architecture, because the numbers mean something else on another;
// then the rules one by one, with a separate action for gated ones; everything else is denied.
func filter(rules []rule, gated uint32) []unix.SockFilter {
	p := []unix.SockFilter{
		load(offArch),
		jump(unix.BPF_JEQ, auditArch, 1, 0),
		ret(retKill),
		load(offNumber),
	}
	for _, r := range rules {
		if r.when.kind == always {
			p = append(p, jump(unix.BPF_JEQ, r.call, 0, 1), ret(map[bool]uint32{false: retAllow, true: gated}[r.gated]))
			continue
		}
		if n := len(r.when.values); r.when.kind == oneOf {
			p = append(p, jump(unix.BPF_JEQ, r.call, 0, uint8(n+3)), load(offArgs+8*uint32(r.when.argument)))
			for i, v := range r.when.values {
				p = append(p, jump(unix.BPF_JEQ, v, uint8(n-i), 0))
			}
			p = append(p, ret(retDeny), ret(retAllow))
			continue
		}
		p = append(p, jump(unix.BPF_JEQ, r.call, 0, 4), load(offArgs+8*uint32(r.when.argument)))
		switch r.when.kind {
		case equals:
			p = append(p, jump(unix.BPF_JEQ, r.when.value, 0, 1))
		case hasAll:
			p = append(p, jump(unix.BPF_JSET, r.when.value, 0, 1))
		case lacksAll:
			p = append(p, jump(unix.BPF_JSET, r.when.value, 1, 0))
		}
		p = append(p, ret(retAllow), ret(retDeny))
	}
	return append(p,
		// A caller that falls back from clone3 to clone must learn that clone3 does not exist.
		jump(unix.BPF_JEQ, unix.SYS_CLONE3, 0, 1), ret(retAbsent),
		ret(retDeny))
}
