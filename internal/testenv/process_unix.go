//go:build unix

package testenv

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// A process is a server that we started, with the folder that is its own.
//
// Each has a keeper: a shell that reads from a pipe which only we hold open. When
// this process ends, however it ends, the keeper sees the end of the pipe, ends
// the server and removes the folder. Unlike a parent death signal it also cleans
// up, needs no locked thread, and works on macOS.
type process struct {
	cmd    *exec.Cmd
	keeper *exec.Cmd
	pipe   io.WriteCloser
	gone   bool // reaped
}

// The keeper is told the signal, the pid and the folder. A line on the pipe says
// that the server was stopped in good order and that its pid means nothing now.
// A signal other than KILL has a second to work: Postgres owes the system a shared
// memory segment, which nobody else gives back.
const keeper = `read -r _ && exit
kill -s "$1" "$2"
[ "$1" = KILL ] || sleep 1
kill -s KILL "$2"
rm -rf -- "$3"`

// A credential is another user to run a server as; nil is whoever we are.
type credential = syscall.Credential

// run waits for a command that prepares a server in dir.
func run(dir string, as *credential, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir // the one we are in may be closed to the other user
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	out, err := cmd.CombinedOutput()
	if as != nil && errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("run %s as uid %d in %s: %w; set TMPDIR to a folder that others may enter", name, as.Uid, dir, err)
	}
	if err != nil {
		return fmt.Errorf("run %s: %w: %s", name, err, out)
	}
	return nil
}

// start runs a server in its folder, where server.log takes what it prints. end
// is the signal that it gets from its keeper.
func start(dir, end string, as *credential, name string, args ...string) (*process, error) {
	log, err := os.OpenFile(filepath.Join(dir, "server.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &process{cmd: exec.Command(name, args...)}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	// A group of its own: Ctrl-C is for us, who then end the servers.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.keeper = exec.Command("/bin/sh", "-c", keeper, "keeper", end, strconv.Itoa(p.cmd.Process.Pid), dir)
	p.keeper.Dir = "/"
	p.keeper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.pipe, err = p.keeper.StdinPipe()
	if err == nil {
		err = p.keeper.Start()
	}
	if err != nil {
		p.cmd.Process.Kill()
		p.cmd.Wait()
		return nil, fmt.Errorf("keeper of %s: %w", name, err)
	}
	return p, nil
}

// exited says whether the server has ended by itself.
func (p *process) exited() bool {
	if !p.gone {
		pid, err := syscall.Wait4(p.cmd.Process.Pid, nil, syscall.WNOHANG, nil)
		p.gone = pid > 0 || err == syscall.ECHILD
	}
	return p.gone
}

// kill ends the server at once and returns when it and its folder are gone.
func (p *process) kill() {
	if p.pipe == nil {
		return // a second time
	}
	if !p.exited() {
		p.cmd.Process.Kill()
		p.cmd.Wait()
		p.gone = true
	}
	io.WriteString(p.pipe, "gone\n")
	p.pipe.Close()
	p.keeper.Wait()
	p.pipe = nil
	os.RemoveAll(p.cmd.Dir)
}

// freeze returns when the server has stopped; thaw lets it go on.
func (p *process) freeze() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	// The signal is only a wish until the kernel reports the stop.
	var state syscall.WaitStatus
	_, err := syscall.Wait4(p.cmd.Process.Pid, &state, syscall.WUNTRACED, nil)
	p.gone = state.Exited() || state.Signaled()
	if err == nil && p.gone {
		return fmt.Errorf("server has ended")
	}
	return err
}

func (p *process) thaw() error {
	return p.cmd.Process.Signal(syscall.SIGCONT)
}

// ready returns when the server answers. One that does not is killed, and the
// error carries the end of its log.
func (p *process) ready(ask func() error) error {
	err := answers(ask, p.exited)
	if err == nil {
		return nil
	}
	log, _ := os.ReadFile(filepath.Join(p.cmd.Dir, "server.log"))
	p.kill()
	return fmt.Errorf("%s does not answer: %w; its log ends: %s", p.cmd.Path, err, log[max(0, len(log)-1000):])
}

// unprivileged returns whom to run a server as that refuses root, and gives them
// dir; nil where we are not root.
func unprivileged(dir string, names ...string) (*credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 != nil || err2 != nil {
			continue
		}
		return &credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(dir, int(uid), int(gid))
	}
	return nil, fmt.Errorf("run as root, and there is no user of %q to run it as instead", names)
}
