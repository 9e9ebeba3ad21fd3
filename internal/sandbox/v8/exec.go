//go:build linux && (amd64 || arm64)

package v8

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skein-dev/skein/internal/sandbox/lockdown"
)

// Descriptors that the keeper passes: the harness, and a socket for sending the gate's listener.
const (
	harnessFd = 3
	gateFd    = 4
)

// maxEngineFiles is what Deno has open: pipes, the files of its event loop and of its start.
const maxEngineFiles = 64

// execMain locks this process down and becomes the program in the arguments. It returns only when that fails.
func execMain(args []string) int {
	var data uint64
	var unconfined bool
	flags := flag.NewFlagSet("exec", flag.ContinueOnError)
	flags.Uint64Var(&data, "data", 0, "bytes of writable memory")
	flags.BoolVar(&unconfined, "unconfined", false, "run without a seccomp filter")
	if err := flags.Parse(args); err != nil || flags.NArg() == 0 {
		return 2
	}
	if err := become(flags.Args(), lockdown.Limits{Data: data, Files: maxEngineFiles}, unconfined); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox engine:", err)
	}
	return 1
}

func become(command []string, limits lockdown.Limits, unconfined bool) error {
	runtime.LockOSThread() // the filter applies to this thread, which executes the program
	// So does the signal. The keeper sets it for the initial thread of the program, which may be another one.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("binding the engine's life to its keeper's: %w", err)
	}
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	unix.CloseOnExec(gateFd)
	if unconfined {
		if err := lockdown.ApplyLimits(limits); err != nil {
			return err
		}
	} else {
		if err := lockBehindGate(limits); err != nil {
			return err
		}
	}
	return syscall.Exec(command[0], command, engineEnv)
}

// engineEnv names no place to store anything, and the default language and time zone.
var engineEnv = []string{
	"DENO_DIR=/proc/self/none", "HOME=/proc/self/none", "DENO_NO_UPDATE_CHECK=1", "NO_COLOR=1", "TZ=UTC", "LANG=C",
}

// lockBehindGate locks this thread and hands the gate over: the listener of the filter or, where the kernel has no
// suitable one, the thread to trace. In that case the keeper says when it traces the thread.
func lockBehindGate(limits lockdown.Limits) error {
	listener, err := lockdown.ApplyEngine(limits)
	if err == nil {
		if err := unix.Sendmsg(gateFd, []byte{0}, unix.UnixRights(listener), nil, 0); err != nil {
			return fmt.Errorf("handing the gate over: %w", err)
		}
		return unix.Close(listener) // so that calls fail, instead of waiting, once the keeper has closed the only other descriptor
	}
	if !errors.Is(err, lockdown.ErrNoGate) {
		return err
	}
	if err := unix.Sendmsg(gateFd, binary.BigEndian.AppendUint32(nil, uint32(unix.Gettid())), nil, nil, 0); err != nil {
		return fmt.Errorf("asking to be traced: %w", err)
	}
	if n, err := unix.Read(gateFd, make([]byte, 1)); err != nil || n != 1 {
		return errors.Join(errors.New("the engine is not traced"), err)
	}
	return lockdown.ApplyTracedEngine(limits)
}

// receiveGate opens the gate that lockBehindGate hands over for a process.
func receiveGate(socket, pid int) (lockdown.Gate, error) {
	message, oob := make([]byte, 4), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := unix.Recvmsg(socket, message, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, err
	}
	switch n {
	case 0:
		return nil, errors.New("it ended before it was locked down")
	case len(message):
		g, err := lockdown.OpenTraceGate(pid, int(binary.BigEndian.Uint32(message)))
		if err != nil {
			return nil, err
		}
		if _, err := unix.Write(socket, []byte{0}); err != nil {
			return nil, errors.Join(err, g.Close())
		}
		return g, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		return nil, errors.New("it sent no listener")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.New("it sent no listener")
	}
	return lockdown.OpenGate(fds[0])
}
