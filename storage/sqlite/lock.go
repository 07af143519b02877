package sqlite

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/objecthost/objecthost/storage"
)

// Lock implements storage.Driver with a lock on <file>.lock that the system
// takes back when the process ends, however it ends. The file holds the
// process id of its holder and stays when the lock is released: removing it
// could take away the file that another process has just locked.
func (d *Driver) Lock(context.Context) (release func() error, err error) {
	f, err := os.OpenFile(d.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("storage: lock %s: %w", d.path, err)
	}
	taken, err := tryLock(f)
	if err == nil && !taken {
		err = &storage.LockedError{Path: d.path, PID: readPID(f)}
	} else if err == nil {
		err = writePID(f)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f.Close, nil
}

func readPID(f *os.File) int {
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}

func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("storage: write the lock file: %w", err)
	}
	if _, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return fmt.Errorf("storage: write the lock file: %w", err)
	}
	return nil
}
