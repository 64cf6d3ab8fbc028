package testenv

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// What runs where no binary is installed.
const (
	imageRedis    = "redis:7-alpine"
	imagePostgres = "postgres:15-alpine"
	imageMariaDB  = "mariadb:10.11"

	pullLimit = 5 * time.Minute // for an image to come and a container to start
)

// A docker is a server in a container, published at addr. The reaper that
// testcontainers starts beside it removes it when this binary ends.
type docker struct {
	*testcontainers.DockerContainer
	addr string
	ask  func() error
}

// runImage starts a container and waits until ask says that it answers at addr.
// The port is one that we choose: one that Docker chose would be another after a
// restart.
func runImage(image, port string, env map[string]string, ask func(addr string) error, cmd ...string) (d *docker, err error) {
	defer func() {
		if p := recover(); p != nil { // how it says that there is no Docker host
			err = fmt.Errorf("docker: %v", p)
		}
	}()
	ours, err := freePort()
	if err != nil {
		return nil, err
	}
	inside, err := network.ParsePort(port + "/tcp")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), pullLimit)
	defer cancel()
	c, err := testcontainers.Run(ctx, image,
		testcontainers.WithExposedPorts(inside.String()),
		testcontainers.WithEnv(env),
		testcontainers.WithCmd(cmd...),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
			h.PortBindings = network.PortMap{inside: {{HostPort: ours}}}
		}))
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	host, err := c.Host(ctx)
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	d = &docker{DockerContainer: c, addr: net.JoinHostPort(host, ours)}
	d.ask = func() error { return ask(d.addr) }
	return d, d.ready()
}

func (d *docker) ready() error {
	if err := answers(d.ask, d.ended); err != nil {
		return fmt.Errorf("docker: %s does not answer at %s: %w", d.Image, d.addr, err)
	}
	return nil
}

// ended asks the daemon: IsRunning only knows what was done through itself.
func (d *docker) ended() bool {
	state, err := d.State(context.Background())
	return err == nil && !state.Running
}

func (d *docker) freeze() error {
	return d.do(func(ctx context.Context, c *testcontainers.DockerClient) error {
		_, err := c.ContainerPause(ctx, d.ID, client.ContainerPauseOptions{})
		return err
	})
}

func (d *docker) thaw() error {
	return d.do(func(ctx context.Context, c *testcontainers.DockerClient) error {
		_, err := c.ContainerUnpause(ctx, d.ID, client.ContainerUnpauseOptions{})
		return err
	})
}

func (d *docker) kill() error {
	if d.ended() {
		return nil
	}
	return d.do(func(ctx context.Context, c *testcontainers.DockerClient) error {
		gone := c.ContainerWait(ctx, d.ID, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
		if _, err := c.ContainerKill(ctx, d.ID, client.ContainerKillOptions{Signal: "KILL"}); err != nil {
			return err
		}
		select {
		case <-gone.Result:
			return nil
		case err := <-gone.Error:
			return err
		}
	})
}

func (d *docker) start() error {
	err := d.do(func(ctx context.Context, c *testcontainers.DockerClient) error {
		_, err := c.ContainerStart(ctx, d.ID, client.ContainerStartOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return d.ready()
}

func (d *docker) do(act func(context.Context, *testcontainers.DockerClient) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	c, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return act(ctx, c)
}

func redisContainer(t testing.TB) (*docker, error) {
	d, err := runImage(imageRedis, "6379", nil, func(addr string) error {
		_, err := redisInfo(addr)
		return err
	}, "redis-server", "--save", "", "--appendonly", "no", "--protected-mode", "no")
	if d != nil {
		testcontainers.CleanupContainer(t, d)
	}
	return d, err
}

func postgresContainer() (server, error) {
	s := server{url: postgresURL("")}
	password, _ := s.url.User.Password()
	d, err := runImage(imagePostgres, "5432", map[string]string{"POSTGRES_PASSWORD": password}, func(addr string) error {
		s.url.Host = addr
		return postgresExec(s.url, "SELECT 1")
	}, "postgres", "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off", "-c", "max_connections=200")
	s.body = d
	return s, err
}

func mariadbContainer() (server, error) {
	s := server{url: mariadbURL("root", "")}
	password, _ := s.url.User.Password()
	d, err := runImage(imageMariaDB, "3306", map[string]string{"MARIADB_ROOT_PASSWORD": password}, func(addr string) error {
		s.url.Host = addr
		return mariadbExec(s.url, "SELECT 1")
	}, "--skip-name-resolve")
	s.body = d
	return s, err
}
