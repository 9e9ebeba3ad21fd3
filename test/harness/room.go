package harness

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// Room is a small disk that several managers share, and that the test can fill. It is mounted in a mount namespace of its own, in
// which they run: root makes one, others make a user namespace too, where they are root.
type Room struct {
	dir    string
	size   string
	holder *exec.Cmd
	stays  io.Closer
}

// NewRoom mounts a disk of a size, such as 64m, at a folder that exists.
func NewRoom(dir, size string) (*Room, error) {
	words := []string{"--mount"}
	if os.Geteuid() != 0 {
		words = append(words, "--user", "--map-root-user")
	}
	cmd := exec.Command("unshare", append(words, "sh", "-c", `mount -t tmpfs -o size="$1" tmpfs "$0" && echo mounted && exec cat`, dir, size)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := &Room{dir: dir, size: size, holder: cmd, stays: in}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return nil, errors.Join(fmt.Errorf("mount a small disk at %s: %w", dir, err), r.Close())
	}
	return r, nil
}

// Within is a command that runs its program where the disk is mounted.
func (r *Room) Within() []string {
	words := []string{"nsenter", "--target", strconv.Itoa(r.holder.Process.Pid), "--mount"}
	if os.Geteuid() != 0 {
		words = append(words, "--user", "--preserve-credentials")
	}
	return words
}

// Path is the folder of the disk as processes outside reach it.
func (r *Room) Path() string {
	return filepath.Join("/proc", strconv.Itoa(r.holder.Process.Pid), "root", r.dir)
}

// Fill leaves no room: the disk shrinks to what is on it. So it takes no memory, whatever its size is.
func (r *Room) Fill() (err error) {
	for range 20 { // what is written meanwhile may need more than was looked up
		var disk syscall.Statfs_t
		if err := syscall.Statfs(r.Path(), &disk); err != nil {
			return err
		}
		used := max(disk.Blocks-disk.Bfree, 1) // 0 would set no limit
		if err = r.resize(strconv.FormatUint(used*uint64(disk.Bsize), 10)); err == nil {
			return nil
		}
	}
	return err
}

// Clear gives the disk its size again.
func (r *Room) Clear() error { return r.resize(r.size) }

func (r *Room) resize(size string) error {
	words := append(r.Within(), "mount", "-o", "remount,size="+size, r.dir)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("resize the disk at %s to %s: %w: %s", r.dir, size, err, out)
	}
	return nil
}

// Close unmounts the disk once it is not used.
func (r *Room) Close() error {
	err := r.stays.Close()
	_ = r.holder.Wait()
	return err
}
