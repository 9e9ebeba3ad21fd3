// Package leader lets a process lead at once after the one before it on the same data folder was killed.
//
// A leader that is killed cannot release its lease, so another process waits until the lease has expired. But a data
// folder is locked by the process that uses it. A process that has the lock knows that the earlier processes on this
// folder are gone, so it need not wait for their lease. Each process writes the name with which it stands for election
// into the folder.
//
// The contents of the folder are no proof by themselves: a copy of the folder has the same files while the process on
// the original lives. So the record also identifies the lock file, by machine, device and inode. A process on a copy
// has another lock file, and waits for the lease as any other process does.
package leader

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	recordFile = "leader.json"
	// maxProcesses limits how many processes a record names. More than one matters only when one was killed before it
	// led.
	maxProcesses = 16
)

// bootID identifies the boot of this machine's kernel. Device and inode numbers mean nothing beyond it.
var bootID = "/proc/sys/kernel/random/boot_id"

// record lists the processes that used a data folder, the newest last.
type record struct {
	Boot      string   `json:"boot"`
	Device    uint64   `json:"device"`
	Inode     uint64   `json:"inode"`
	Processes []string `json:"processes"`
}

// Register records that this process stands for election as identity. It returns the names of the processes that used
// the same folder before and are gone. The process must have locked the file lock, which is in the folder, and must not
// stand for election before Register returns. When the record cannot be read or written, Register returns an error; the
// process may still stand for election with that name.
func Register(lock, identity string) (former []string, err error) {
	here, err := newRecord(lock)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(filepath.Dir(lock), recordFile)
	found, err := readRecord(file)
	if found.Boot == here.Boot && found.Device == here.Device && found.Inode == here.Inode {
		former = found.Processes
	}
	here.Processes = append(slices.Clone(former), identity)
	if n := len(here.Processes); n > maxProcesses {
		here.Processes = here.Processes[n-maxProcesses:]
	}
	return former, errors.Join(err, here.write(file))
}

// newRecord returns a record without processes for a lock file. The boot, the device and the inode identify the file.
func newRecord(file string) (*record, error) {
	boot, err := os.ReadFile(bootID)
	if err != nil {
		return nil, fmt.Errorf("read the boot id of this machine: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		return nil, fmt.Errorf("read the attributes of %s: %w", file, err)
	}
	return &record{Boot: strings.TrimSpace(string(boot)), Device: uint64(st.Dev), Inode: uint64(st.Ino)}, nil
}

// readRecord returns an empty record when there is none.
func readRecord(file string) (*record, error) {
	r := &record{}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("read the earlier users of the data folder: %w", err)
	}
	if err := json.Unmarshal(b, r); err != nil {
		return &record{}, fmt.Errorf("read the earlier users of the data folder from %s: %w", file, err)
	}
	return r, nil
}

// write replaces the record. The record is on disk when write returns, because the process may take the lease right
// after.
func (r *record) write(file string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("record the user of the data folder: %w", err)
		}
	}()
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	next := file + ".new"
	f, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(next, file); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
