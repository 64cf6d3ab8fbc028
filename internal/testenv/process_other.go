//go:build !unix

package testenv

import "errors"

// Elsewhere no server is started: tests take given addresses or containers.
var errNotUnix = errors.New("servers are started on Unix alone")

type home struct{ dir string }

type credential struct{}

type process struct{}

func newHome(string) (*home, error)                      { return nil, errNotUnix }
func (h *home) leave()                                   {}
func (h *home) run(*credential, string, ...string) error { return errNotUnix }
func (h *home) owner(...string) (*credential, error)     { return nil, errNotUnix }
func (h *home) start(string, *credential, string, ...string) (*process, error) {
	return nil, errNotUnix
}

func (p *process) pid() int                 { return 0 }
func (p *process) exited() bool             { return true }
func (p *process) kill() error              { return errNotUnix }
func (p *process) freeze() error            { return errNotUnix }
func (p *process) thaw() error              { return errNotUnix }
func (p *process) ready(func() error) error { return errNotUnix }
