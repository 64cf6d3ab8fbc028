// Package embedded runs Redis masters inside this process, for `quorate dev` and
// for tests: they speak the protocol over loopback, expire keys by the wall clock
// and answer INFO like independent masters. They keep nothing on disk and are not
// made for load: nothing in production depends on them.
package embedded

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// Masters are servers that run until they are closed.
type Masters struct {
	servers []*miniredis.Miniredis
}

// Start starts n masters on free loopback ports.
func Start(n int) (*Masters, error) {
	m := &Masters{}
	for range n {
		s := miniredis.NewMiniRedis()
		s.ClockTTL(true)
		if err := s.Start(); err != nil {
			m.Close()
			return nil, fmt.Errorf("start an embedded master: %w", err)
		}
		answerInfo(s)
		m.servers = append(m.servers, s)
	}
	return m, nil
}

// URLs are the addresses of the masters.
func (m *Masters) URLs() []string {
	urls := make([]string, len(m.servers))
	for i, s := range m.servers {
		urls[i] = "redis://" + s.Addr()
	}
	return urls
}

// Close stops the masters and forgets their keys.
func (m *Masters) Close() {
	for _, s := range m.servers {
		s.Close()
	}
}

// answerInfo answers INFO, which miniredis does not know in full.
func answerInfo(s *miniredis.Miniredis) {
	var id [20]byte
	_, _ = rand.Read(id[:])
	started := time.Now()
	s.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		if !strings.EqualFold(cmd, "INFO") {
			return false
		}
		c.WriteBulk(fmt.Sprintf("# Server\r\nredis_version:7.0.0\r\nrun_id:%s\r\nuptime_in_seconds:%d\r\n"+
			"# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"+
			"# Replication\r\nrole:master\r\nconnected_slaves:0\r\n# Cluster\r\ncluster_enabled:0\r\n",
			hex.EncodeToString(id[:]), int(time.Since(started).Seconds())))
		return true
	})
}
