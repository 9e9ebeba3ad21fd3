//go:build linux && (amd64 || arm64)

package lockdown

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// verdict runs a filter for a system call, as the kernel would.
func verdict(t *testing.T, program []unix.SockFilter, call uint32, arguments ...uint32) uint32 {
	t.Helper()
	var raw []bpf.RawInstruction
	for _, i := range program {
		raw = append(raw, bpf.RawInstruction{Op: i.Code, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	instructions, whole := bpf.Disassemble(raw)
	if !whole {
		t.Fatal("the program has instructions that are none")
	}
	vm, err := bpf.NewVM(instructions)
	if err != nil {
		t.Fatal(err)
	}
	// This machine reads numbers in network order on every processor.
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[offNumber:], call)
	binary.BigEndian.PutUint32(data[offArch:], auditArch)
	for i, a := range arguments {
		binary.BigEndian.PutUint32(data[offArgs+8*i:], a)
	}
	got, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(got)
}

func TestTheEngineMayUseFewCommandsOfFcntl(t *testing.T) {
	program := filter(engineRules(1), retAsk)
	for command, want := range map[uint32]uint32{
		unix.F_DUPFD: retAllow, unix.F_DUPFD_CLOEXEC: retAllow, unix.F_GETFD: retAllow, unix.F_SETFD: retAllow, unix.F_GETFL: retAllow, unix.F_SETFL: retAllow,
		unix.F_SETOWN: retDeny, unix.F_SETOWN_EX: retDeny, unix.F_SETSIG: retDeny, unix.F_NOTIFY: retDeny, unix.F_SETLEASE: retDeny,
		unix.F_SETLK: retDeny, unix.F_OFD_SETLK: retDeny, unix.F_SETPIPE_SZ: retDeny, unix.F_ADD_SEALS: retDeny, 12345: retDeny,
	} {
		if got := verdict(t, program, unix.SYS_FCNTL, 3, command); got != want {
			t.Errorf("fcntl command %d gives %#x, not %#x", command, got, want)
		}
	}
	for _, c := range []struct {
		call      uint32
		arguments []uint32
		want      uint32
	}{
		{unix.SYS_READ, nil, retAllow}, {unix.SYS_SOCKET, nil, retDeny}, {unix.SYS_EXECVE, nil, retAsk},
		{unix.SYS_SOCKETPAIR, []uint32{unix.AF_UNIX}, retAllow}, {unix.SYS_SOCKETPAIR, []uint32{unix.AF_INET}, retDeny},
		{unix.SYS_CLOCK_GETRES, nil, retAllow}, // the rule behind fcntl's
	} {
		if got := verdict(t, program, c.call, c.arguments...); got != c.want {
			t.Errorf("call %d gives %#x, not %#x", c.call, got, c.want)
		}
	}
}
