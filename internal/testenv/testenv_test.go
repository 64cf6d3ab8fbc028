package testenv

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"
)

// Some promises are about how a test binary ends. Such a test runs itself again,
// as a child that has this in its environment.
const inChild = "QUORATE_TESTENV_CHILD"

func child(t *testing.T, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), append(env, inChild+"=1")...)
	return cmd
}

// eventually fails the test unless ok comes true in time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for begun := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > 20*time.Second {
			t.Fatalf("not after 20 s: %s", what)
		}
	}
}

func TestMissingServerSkipsAndFailsWhereRequired(t *testing.T) {
	if os.Getenv(inChild) != "" {
		_, err := find("no-such-server")
		without(t, "server", errors.Join(err, errors.New("no docker either")))
		t.Error("the test went on")
	}
	const reason = "no-such-server is not installed; no docker either"
	out, err := child(t, envRequire+"=").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- SKIP") || !strings.Contains(string(out), reason) {
		t.Errorf("not required: %v\n%s\nwant a skip that says %q", err, out, reason)
	}
	out, err = child(t, envRequire+"=1").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--- FAIL") || !strings.Contains(string(out), reason) {
		t.Errorf("required: %v\n%s\nwant a failure that says %q", err, out, reason)
	}
}

func TestGivenAddressThatDoesNotAnswerFailsWithoutItsPassword(t *testing.T) {
	if os.Getenv(inChild) != "" {
		t.Run("redis", func(t *testing.T) { Masters(t, 1) })
		t.Run("postgres", func(t *testing.T) { Postgres(t) })
		t.Run("mariadb", func(t *testing.T) { MariaDB(t) })
		return
	}
	for _, end := range []string{"@127.0.0.1:1/x", "@127.0.0.1:no-port/x"} {
		out, err := child(t, envRequire+"=", envRedis+"=redis://u:verysecret"+end,
			envPostgres+"=postgres://u:verysecret"+end, envMariaDB+"=mysql://u:verysecret"+end).CombinedOutput()
		if err == nil || strings.Count(string(out), "    --- FAIL") != 3 {
			t.Errorf("%s: %v\n%s\nwant three failures", end, err, out)
		}
		if strings.Contains(string(out), "verysecret") {
			t.Errorf("%s: the password is printed:\n%s", end, out)
		}
	}
}

func TestGivenServersAreUsed(t *testing.T) {
	master, pg, maria := Masters(t, 1)[0], Postgres(t), MariaDB(t)
	t.Setenv(envRedis, master.URL())
	t.Setenv(envPostgres, pg)
	t.Setenv(envMariaDB, maria)
	if got := Masters(t, 1)[0].Addr(); got != master.Addr() {
		t.Errorf("master at %s, want %s", got, master.Addr())
	}
	for given, lent := range map[string]string{pg: Postgres(t), maria: MariaDB(t)} {
		g, l := parsed(t, given), parsed(t, lent)
		if g.Host != l.Host || g.Path == l.Path {
			t.Errorf("lent %s%s, want another database of %s", l.Host, l.Path, g.Host)
		}
	}
}

func TestNothingIsLeftOfABinaryThatEnded(t *testing.T) {
	if os.Getenv(inChild) != "" {
		masters := Masters(t, 2)
		masters[0].Stop()
		fmt.Println(masters[0].Addr(), masters[1].Addr(), parsed(t, Postgres(t)).Host, parsed(t, MariaDB(t)).Host)
		io.Copy(io.Discard, os.Stdin)
		return
	}
	if _, contained := Masters(t, 1)[0].body.(*docker); contained {
		t.Skip("servers run in containers here: testcontainers' reaper ends them")
	}
	Postgres(t)
	MariaDB(t)
	for _, how := range []string{"in good order", "killed"} {
		t.Run(how, func(t *testing.T) {
			tmp := openTempDir(t)
			cmd := exec.Command(os.Args[0], "-test.run=^TestNothingIsLeftOfABinaryThatEnded$")
			cmd.Env = append(os.Environ(), inChild+"=1", "TMPDIR="+tmp)
			in, err1 := cmd.StdinPipe()
			out, err2 := cmd.StdoutPipe()
			if err := errors.Join(err1, err2, cmd.Start()); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(out)
			line, err := lines.ReadString('\n')
			addrs := strings.Fields(line)
			if err != nil || len(alive(addrs)) != 4 {
				t.Fatalf("child lends %q: %v; want 4 servers that listen", line, err)
			}
			if how == "killed" {
				cmd.Process.Kill()
			} else {
				in.Close()
			}
			io.Copy(io.Discard, lines)
			if err := cmd.Wait(); (err != nil) != (how == "killed") {
				t.Fatalf("child: %v", err)
			}
			eventually(t, "servers and their folders are gone", func() bool {
				return len(entries(t, tmp)) == 0 && len(alive(addrs)) == 0
			})
		})
	}
}

func TestNoGoroutineOutlivesACall(t *testing.T) {
	before := goleak.IgnoreCurrent()
	Masters(t, 2)
	Postgres(t)
	MariaDB(t)
	goleak.VerifyNone(t, before)
}

func TestPostgresIsFreshAndDroppedAtTheEnd(t *testing.T) {
	other := Postgres(t)
	var lent string
	t.Run("a test", func(t *testing.T) {
		lent = Postgres(t)
		if err := postgresExec(parsed(t, lent), "CREATE TABLE mine (n int)"); err != nil {
			t.Fatal(err)
		}
		if err := postgresExec(parsed(t, other), "SELECT n FROM mine"); err == nil {
			t.Error("a table of one database is seen in another")
		}
	})
	var answer *pgconn.PgError
	err := postgresExec(parsed(t, lent), "SELECT 1")
	if !errors.As(err, &answer) || answer.Code != "3D000" {
		t.Errorf("after its test the database says %v, want 3D000: does not exist", err)
	}
}

func TestMariaDBIsFreshAndDroppedAtTheEnd(t *testing.T) {
	other := MariaDB(t)
	var lent string
	t.Run("a test", func(t *testing.T) {
		lent = MariaDB(t)
		mine := strings.TrimPrefix(parsed(t, lent).Path, "/")
		if err := mariadbExec(parsed(t, lent), "CREATE TABLE "+mine+".mine (n int)"); err != nil {
			t.Fatal(err)
		}
		if mine == strings.TrimPrefix(parsed(t, other).Path, "/") {
			t.Error("two tests have one database")
		}
	})
	var answer *mysql.MySQLError
	err := mariadbExec(parsed(t, lent), "SELECT n FROM "+strings.TrimPrefix(parsed(t, lent).Path, "/")+".mine")
	if !errors.As(err, &answer) || answer.Number != 1146 && answer.Number != 1049 {
		t.Errorf("after its test the table says %v, want 1146 or 1049: does not exist", err)
	}
}

func parsed(t *testing.T, address string) *url.URL {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// openTempDir is t.TempDir for servers that run as another user.
func openTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "quorate-test-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// alive returns which of the addresses accept connections.
func alive(addrs []string) []string {
	return slices.DeleteFunc(slices.Clone(addrs), func(addr string) bool {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
}

func entries(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	found, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
