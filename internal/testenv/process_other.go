//go:build !unix

package testenv

import (
	"errors"
	"os/exec"
)

// Elsewhere no server is started: tests take given addresses or containers.
var errNotUnix = errors.New("servers are started on Unix alone")

type credential struct{}

type process struct{ cmd *exec.Cmd }

func run(dir string, as *credential, name string, args ...string) error { return errNotUnix }

func start(dir, end string, as *credential, name string, args ...string) (*process, error) {
	return nil, errNotUnix
}

func unprivileged(dir string, names ...string) (*credential, error) { return nil, errNotUnix }

func (p *process) exited() bool                 { return true }
func (p *process) kill()                        {}
func (p *process) freeze() error                { return errNotUnix }
func (p *process) thaw() error                  { return errNotUnix }
func (p *process) ready(ask func() error) error { return errNotUnix }
