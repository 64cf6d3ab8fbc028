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

// A home is the folder of one server, with its keeper: a shell that reads from a
// pipe which only we hold open. When this process ends, however it ends, the
// keeper sees the end of the pipe, ends what runs in the folder and removes it.
// Unlike a parent death signal that also cleans up, needs no locked thread, and
// works on macOS.
type home struct {
	dir    string
	keeper *exec.Cmd
	pipe   io.WriteCloser // nil once we have left
}

// Each line names the signal and the process group that runs now; an empty one, none.
// A signal other than KILL has a second to work: Postgres owes the system a shared
// memory segment, which nobody else gives back.
const keeper = `
while read -r s p; do signal=$s pid=$p; done
if [ "$pid" ]; then
	kill -s "$signal" -- "-$pid"
	[ "$signal" = KILL ] || sleep 1
	kill -s KILL -- "-$pid"
fi
rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }`

// A credential is another user to run a server as; nil is whoever we are.
type credential = syscall.Credential

func newHome(server string) (*home, error) {
	dir, err := os.MkdirTemp("", "quorate-"+server+"-")
	if err != nil {
		return nil, err
	}
	h := &home{dir: dir, keeper: exec.Command("/bin/sh", "-c", keeper, "keeper", dir)}
	h.keeper.Dir = "/"
	// Groups of their own, here and below: Ctrl-C is for us, and our end is for them.
	h.keeper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	h.pipe, err = h.keeper.StdinPipe()
	if err == nil {
		err = h.keeper.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("keeper of %s: %w", dir, err), os.RemoveAll(dir))
	}
	return h, nil
}

// leave ends the keeper, which removes the folder.
func (h *home) leave() {
	if h.pipe != nil {
		h.pipe.Close()
		h.keeper.Wait()
		h.pipe = nil
	}
}

// begin starts a command in the folder.
func (h *home) begin(cmd *exec.Cmd, signal string, as *credential) error {
	cmd.Dir = h.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, Setpgid: true}
	err := cmd.Start()
	if as != nil && errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("run %s as uid %d in %s: %w; set TMPDIR to a folder that others may enter", cmd.Path, as.Uid, h.dir, err)
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", cmd.Path, err)
	}
	fmt.Fprintln(h.pipe, signal, cmd.Process.Pid)
	return nil
}

// ended tells the keeper that the pid it has means nothing any more.
func (h *home) ended() { fmt.Fprintln(h.pipe) }

// run waits for a command that prepares the folder.
func (h *home) run(as *credential, name string, args ...string) error {
	out, err := os.Create(filepath.Join(h.dir, "prepare.log"))
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := h.begin(cmd, "KILL", as); err != nil {
		return err
	}
	err = cmd.Wait()
	h.ended()
	if err != nil {
		return fmt.Errorf("run %s: %w; it says: %s", name, err, tail(out.Name()))
	}
	return nil
}

// owner returns whom to run a server as that refuses root, and gives them the
// folder; nil where we are not root.
func (h *home) owner(names ...string) (*credential, error) {
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
		return &credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(h.dir, int(uid), int(gid))
	}
	return nil, fmt.Errorf("it refuses to run as root, and there is no user of %q to run it as", names)
}

// A process is a server that we started.
type process struct {
	home *home
	cmd  *exec.Cmd
	gone bool // reaped
}

// start runs the server of this home. The signal is how its keeper ends it.
func (h *home) start(signal string, as *credential, name string, args ...string) (*process, error) {
	log, err := os.Create(filepath.Join(h.dir, "server.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &process{home: h, cmd: exec.Command(name, args...)}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	return p, h.begin(p.cmd, signal, as)
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// exited says whether the server has ended by itself.
func (p *process) exited() bool {
	if !p.gone {
		pid, err := syscall.Wait4(p.pid(), nil, syscall.WNOHANG, nil)
		p.gone = pid > 0 || err == syscall.ECHILD
	}
	return p.gone
}

// kill ends the server at once, and returns when it and its folder are gone.
func (p *process) kill() error {
	if p.home.pipe == nil {
		return nil // a second time
	}
	var err error
	if !p.exited() {
		err = p.cmd.Process.Kill()
		p.cmd.Wait() // says that it was killed
		p.gone = true
	}
	p.home.ended()
	p.home.leave()
	return err
}

// freeze returns when the server has stopped.
func (p *process) freeze() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	// The signal is only a wish until the kernel reports the stop.
	var state syscall.WaitStatus
	if _, err := syscall.Wait4(p.pid(), &state, syscall.WUNTRACED, nil); err != nil {
		return err
	}
	if !state.Stopped() {
		p.gone = true
		return errors.New("it has ended")
	}
	return nil
}

func (p *process) thaw() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// ready returns when the server answers. One that does not is killed, and the
// error carries the end of its log.
func (p *process) ready(ask func() error) error {
	err := answers(ask, p.exited)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s does not answer: %w; its log ends: %s", p.cmd.Path, err, tail(filepath.Join(p.home.dir, "server.log")))
	return errors.Join(err, p.kill())
}

// tail returns the end of a log.
func tail(file string) []byte {
	log, err := os.ReadFile(file)
	if err != nil {
		return []byte(err.Error())
	}
	return log[max(0, len(log)-1000):]
}
