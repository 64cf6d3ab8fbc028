//go:build unix

package journal

import (
	"os"
	"syscall"
)

// lock makes the file ours until it is closed, however that comes.
func lock(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
