package sqlstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lockFile is the lock file of a data folder. The kernel holds the lock and ends it with the process; the file stays.
const lockFile = "lock"

// LockFile returns the file that the process using a data folder keeps locked.
func LockFile(dir string) string { return filepath.Join(dir, lockFile) }

// lockFolder locks a data folder for this process.
func lockFolder(dir string) (io.Closer, error) {
	f, err := os.OpenFile(LockFile(dir), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the data folder: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		holder, _ := io.ReadAll(io.LimitReader(f, 100))
		return nil, errors.Join(fmt.Errorf("the data folder %s is in use by another manager%s: the SQLite store serves "+
			"one replica only; use PostgreSQL for more than one replica, or stop the other manager first", dir, inParentheses(holder)), f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the data folder %s: %w", dir, err), f.Close())
	}
	host, _ := os.Hostname()
	if err := f.Truncate(0); err == nil {
		_, _ = fmt.Fprintf(f, "process %d on %s", os.Getpid(), host) // shown only in the error above
	}
	return f, nil
}

// inParentheses returns the holder as the end of a message, such as " (process 7 on web-0)", or "" when it is not known.
func inParentheses(holder []byte) string {
	if s := strings.TrimSpace(string(holder)); s != "" {
		return " (" + s + ")"
	}
	return ""
}
