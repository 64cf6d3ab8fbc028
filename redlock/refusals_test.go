package redlock_test

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"quorate/internal/testenv"
	"quorate/redlock"
)

// Masters that may not vote are causes of a NoQuorumError, each by its name and with a
// reason that an operator can act on.
func TestAMasterThatMayNotVoteSaysWhy(t *testing.T) {
	const secret = "hunter2"
	for name, c := range map[string]struct {
		spoil [][]any
		user  string // of our URL
		want  string
	}{
		"wrong password":         {[][]any{{"CONFIG", "SET", "requirepass", "another"}}, ":" + secret + "@", "password is refused"},
		"no password":            {[][]any{{"CONFIG", "SET", "requirepass", "another"}}, "", "password is refused"},
		"unknown user":           {nil, "nobody:" + secret + "@", "password is refused"},
		"user without INFO":      {aclUser(secret, "~*", "-info"), "locker:" + secret + "@", "permission"},
		"user without SCRIPT":    {aclUser(secret, "~*", "-script"), "locker:" + secret + "@", "permission"},
		"user without DEL":       {aclUser(secret, "~*", "-del"), "locker:" + secret + "@", "may not use DEL"},
		"user without GET":       {aclUser(secret, "~*", "-get"), "locker:" + secret + "@", "may not use GET"},
		"user without PEXPIRE":   {aclUser(secret, "~*", "-pexpire"), "locker:" + secret + "@", "may not use PEXPIRE"},
		"user without EVALSHA":   {aclUser(secret, "~*", "-evalsha"), "locker:" + secret + "@", "may not use EVALSHA"},
		"user without SET":       {aclUser(secret, "~*", "-set"), "locker:" + secret + "@", "permission"},
		"user of other keys":     {aclUser(secret, "~theirs:*"), "locker:" + secret + "@", "permission"},
		"replica":                {[][]any{{"REPLICAOF", "127.0.0.1", "1"}}, "", `role is "slave"`},
		"writable replica":       {[][]any{{"CONFIG", "SET", "replica-read-only", "no"}, {"REPLICAOF", "127.0.0.1", "1"}}, "", `role is "slave"`},
		"evicts what has a TTL":  {[][]any{{"CONFIG", "SET", "maxmemory", "50mb", "maxmemory-policy", "volatile-ttl"}}, "", "volatile-ttl"},
		"evicts what it chooses": {[][]any{{"CONFIG", "SET", "maxmemory", "50mb", "maxmemory-policy", "allkeys-lru"}}, "", "allkeys-lru"},
	} {
		t.Run(name, func(t *testing.T) {
			masters := testenv.Masters(t, 3)
			urls := make([]string, 3)
			for i, m := range masters {
				urls[i] = "redis://" + c.user + m.Addr()
				server := operator(t, m)
				for _, words := range c.spoil {
					order(t, server, words...)
				}
			}
			l := newLocker(t, ungated, urls)
			wantRefused(t, l, urls, c.want, secret)
		})
	}
}

// aclUser makes a user who may do everything except what the rules say.
func aclUser(secret string, rules ...any) [][]any {
	return [][]any{append([]any{"ACL", "SETUSER", "locker", "on", ">" + secret, "+@all"}, rules...)}
}

// wantRefused fails the test unless an attempt names each master and why, and no secret.
func wantRefused(t *testing.T, l *redlock.Locker, urls []string, why, secret string) {
	t.Helper()
	_, err := l.Acquire(t.Context(), "k", time.Minute, "")
	var none *redlock.NoQuorumError
	if !errors.As(err, &none) || !errors.Is(err, redlock.ErrNoQuorum) || errors.Is(err, redlock.ErrTaken) {
		t.Fatalf("acquire: %v", err)
	}
	if len(none.Causes) < none.Need || none.Of != len(urls) {
		t.Errorf("%d causes of %d masters", len(none.Causes), none.Of)
	}
	_, checked := l.Check(t.Context())
	said := fmt.Sprintf("%v %v %+v", err, checked, l.Status())
	for _, cause := range none.Causes {
		if !strings.Contains(cause.Error(), why) {
			t.Errorf("%q does not say %q", cause, why)
		}
		if cause.Master == "" || !strings.Contains(strings.Join(urls, " "), cause.Master) {
			t.Errorf("cause of %q, which is no master of ours", cause.Master)
		}
	}
	if strings.Contains(said, secret) {
		t.Errorf("the password is printed: %s", said)
	}
}

// A policy that cannot act, because there is no limit, evicts nothing.
func TestAPolicyWithoutALimitIsNoReason(t *testing.T) {
	masters := testenv.Masters(t, 3)
	for _, s := range operators(t, masters) {
		order(t, s, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	}
	acquire(t, warm(t, ungated, urlsOf(masters)), "k", time.Second)
}

// One that may not vote costs nothing but its vote.
func TestTwoUnfitMastersOfFiveAreOutvoted(t *testing.T) {
	masters := testenv.Masters(t, 5)
	servers := operators(t, masters)
	order(t, servers[0], "REPLICAOF", "127.0.0.1", "1")
	order(t, servers[1], "CONFIG", "SET", "requirepass", "secret")
	l := newLocker(t, ungated, urlsOf(masters))
	lease := acquire(t, l, "k", time.Minute)
	if v := lease.Evidence().Votes; v != 3 {
		t.Errorf("%d votes, want 3", v)
	}
	if err := lease.Extend(t.Context()); err != nil {
		t.Error(err)
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
	wantGone(t, servers[2:], "k")
}

// testenv lends no cluster, so the test starts its own where there is the binary.
func TestAMemberOfAClusterMayNotVote(t *testing.T) {
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("no redis-server in PATH to start in cluster mode")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	free.Close()
	cmd := exec.Command(bin, "--cluster-enabled", "yes", "--bind", "127.0.0.1", "--port", port,
		"--cluster-port", "0", "--dir", t.TempDir(), "--save", "", "--appendonly", "no")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	eventually(t, "it answers", func() bool { return client.Ping(t.Context()).Err() == nil })
	url := "redis://" + addr
	wantRefused(t, newLocker(t, ungated, []string{url}), []string{url}, "cluster", "no secret")
}

// What a master is may change while we are connected to it.
func TestAMasterThatIsMadeUnfitLosesItsVoteAndHasItBackWhenItIsMended(t *testing.T) {
	for name, c := range map[string]struct {
		spoil, mend []any
		want        string
	}{
		"evicts":           {[]any{"CONFIG", "SET", "maxmemory", "50mb", "maxmemory-policy", "allkeys-lru"}, []any{"CONFIG", "SET", "maxmemory", "0"}, "allkeys-lru"},
		"writable replica": {[]any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"}, `role is "slave"`},
	} {
		t.Run(name, func(t *testing.T) {
			masters := testenv.Masters(t, 1)
			server := operator(t, masters[0])
			order(t, server, "CONFIG", "SET", "replica-read-only", "no")
			l := warm(t, ungated, urlsOf(masters))
			if err := acquire(t, l, "k", time.Minute).Release(); err != nil {
				t.Fatal(err)
			}
			order(t, server, c.spoil...)
			all, err := l.Check(t.Context())
			if err == nil || all[0].Err == nil || !strings.Contains(all[0].Err.Error(), c.want) {
				t.Errorf("check: %v, %+v", err, all)
			}
			if _, err := l.Acquire(t.Context(), "k", time.Minute, ""); !errors.Is(err, redlock.ErrNoQuorum) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("acquire: %v", err)
			}
			order(t, server, c.mend...)
			eventually(t, "it votes again", func() bool {
				all, err := l.Check(t.Context())
				return err == nil && all[0].Err == nil
			})
			acquire(t, l, "k", time.Minute)
		})
	}
}
