package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// What a master may answer to Take. The tables hold every combination of them.
const (
	yes = iota
	taken
	broken
)

// heldBy is who has the key in the answer tables.
const heldBy = "somebody else"

// scripted masters answer to Take what the test wants, when the test wants it. To
// anything else they say yes at once, and keep count of what they released.
type scripted struct {
	name     string
	asked    asked
	released int
}

func (m *scripted) Name() string   { return m.name }
func (m *scripted) Status() Status { return Status{Name: m.name} }
func (m *scripted) Close()         {}

func (m *scripted) Ask(q Question, hearer Hearer, seat int) {
	if q.Op == Take {
		m.asked = asked{Question: q, hearer: hearer, seat: seat}
		return
	}
	if q.Op == Release {
		m.released++
	}
	hearer.Hear(seat, Answer{OK: true})
}

func (m *scripted) answer(word int) {
	switch word {
	case yes:
		m.asked.hear(Answer{OK: true})
	case taken:
		m.asked.hear(Answer{Holder: heldBy})
	case broken:
		m.asked.hear(Answer{Err: errCut, Sent: true})
	}
}

// A table is what each master answers, in the order in which it answers.
type table struct {
	words []int // by master
	order []int // masters
}

func (t table) String() string {
	text := ""
	for _, m := range t.order {
		text += fmt.Sprintf("%d:%s ", m+1, [...]string{"yes", "taken", "error"}[t.words[m]])
	}
	return text
}

// count is the rule, written without the code that it judges: what the first n
// answers say.
func (t table) count(n int) (votes [3]int) {
	for _, m := range t.order[:n] {
		votes[t.words[m]]++
	}
	return votes
}

// decidedBy is how many answers it takes until the rest cannot change the result.
func (t table) decidedBy() int {
	n := len(t.words)
	majority := n/2 + 1
	for k := range n + 1 {
		v := t.count(k)
		rest := n - k
		if v[yes] >= majority || v[yes]+rest < majority {
			return k
		}
	}
	panic("every full table is decided")
}

// A judge runs tables, with one Locker for all of them: inside a synctest bubble.
type judge struct {
	t       *testing.T
	masters []*scripted
	locker  *Locker
}

func newJudge(t *testing.T, n int) *judge {
	j := &judge{t: t}
	var masters []Master
	for i := range n {
		m := &scripted{name: fmt.Sprintf("master%d", i+1)}
		j.masters = append(j.masters, m)
		masters = append(masters, m)
	}
	locker, err := over(Options{AnyNumber: n%2 == 0}, masters...)
	if err != nil {
		t.Fatal(err)
	}
	j.locker = locker
	return j
}

type outcome struct {
	lease *Lease
	err   error
	at    time.Time
}

// run gives the answers one by one, and sees that Acquire returns at the one that
// decides, not before and not after, with what that answer made certain.
func (j *judge) run(tb table) {
	done := make(chan outcome, 1)
	for _, m := range j.masters {
		m.released = 0
	}
	start := time.Now()
	go func() {
		lease, err := j.locker.Acquire(context.Background(), "k", 10*time.Second, "us")
		done <- outcome{lease, err, time.Now()}
	}()
	synctest.Wait()
	decided := tb.decidedBy()
	for i, m := range tb.order[:decided] {
		if len(done) > 0 {
			j.t.Fatalf("%s: returned after %d answers, which decide nothing", tb, i)
		}
		j.masters[m].answer(tb.words[m])
		synctest.Wait()
	}
	if len(done) == 0 {
		j.t.Fatalf("%s: has not returned after %d answers, which decide", tb, decided)
	}
	got := <-done
	if !got.at.Equal(start) {
		j.t.Fatalf("%s: time passed", tb)
	}
	j.check(tb, decided, got)
	for _, m := range tb.order[decided:] {
		j.masters[m].answer(tb.words[m])
	}
	if got.lease != nil {
		if err := got.lease.Release(); err != nil {
			j.t.Fatalf("%s: release: %v", tb, err)
		}
	}
	j.checkCleaned(tb, decided)
}

// check compares what Acquire returned with what the deciding answers say.
func (j *judge) check(tb table, decided int, got outcome) {
	n := len(tb.words)
	majority := n/2 + 1
	v := tb.count(decided)
	wins := v[yes] >= majority
	if wins != (got.lease != nil) || wins != (got.err == nil) {
		j.t.Fatalf("%s: lease %v, error %v", tb, got.lease, got.err)
	}
	if wins {
		return
	}
	var none *NoQuorumError
	var theirs *TakenError
	isNone, isTaken := errors.As(got.err, &none), errors.As(got.err, &theirs)
	// Those who did not answer prevented it by themselves.
	wantNone := n-v[broken] < majority
	if isNone != wantNone || isTaken == wantNone || errors.Is(got.err, ErrNoQuorum) != wantNone || errors.Is(got.err, ErrTaken) == wantNone {
		j.t.Fatalf("%s: error %T %v", tb, got.err, got.err)
	}
	if wantNone {
		j.checkCauses(tb, decided, none)
		return
	}
	held := v[taken] >= majority
	if theirs.Held != held || held != (theirs.Note == heldBy) {
		j.t.Fatalf("%s: %+v", tb, theirs)
	}
}

// checkCauses wants each master that failed, and no other, named with its cause.
func (j *judge) checkCauses(tb table, decided int, none *NoQuorumError) {
	var want []string
	for m, word := range tb.words {
		for _, answered := range tb.order[:decided] {
			if answered == m && word == broken {
				want = append(want, j.masters[m].name)
			}
		}
	}
	var got []string
	for _, c := range none.Causes {
		got = append(got, c.Master)
		if !errors.Is(c, errCut) {
			j.t.Fatalf("%s: cause %v", tb, c)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || none.Need != len(tb.words)/2+1 || none.Of != len(tb.words) || !errors.Is(none, errCut) {
		j.t.Fatalf("%s: causes %v, want %v", tb, got, want)
	}
}

// checkCleaned wants every master that may have our key to have been told that it
// is not wanted any more, and nobody else who had said so before it was decided.
func (j *judge) checkCleaned(tb table, decided int) {
	for k, i := range tb.order {
		m := j.masters[i]
		if mayHave := tb.words[i] != taken; mayHave != (m.released > 0) && (mayHave || k < decided) {
			j.t.Fatalf("%s: master %d was asked %d times to release the key", tb, i+1, m.released)
		}
	}
}

// tables calls f with all 3^n of them.
func tables(n int, f func(words []int)) {
	words := make([]int, n)
	for {
		f(words)
		i := 0
		for ; i < n; i++ {
			if words[i]++; words[i] <= broken {
				break
			}
			words[i] = yes
		}
		if i == n {
			return
		}
	}
}

// orders calls f with all orders of n masters.
func orders(n int, f func(order []int)) {
	order := make([]int, 0, n)
	var pick func(left int)
	pick = func(left int) {
		if left == 0 {
			f(order)
		}
		for m := range n {
			if left&(1<<m) != 0 {
				order = append(order, m)
				pick(left &^ (1 << m))
				order = order[:len(order)-1]
			}
		}
	}
	pick(1<<n - 1)
}

func TestEveryAnswerTableIsDecidedRightAndAsSoonAsItCanBe(t *testing.T) {
	const randomOrders = 10
	random := rand.New(rand.NewPCG(7, 3))
	for n := 1; n <= 7; n++ {
		count := 0
		synctest.Test(t, func(t *testing.T) {
			j := newJudge(t, n)
			defer j.locker.Close()
			tables(n, func(words []int) {
				if n <= 5 {
					orders(n, func(order []int) { count++; j.run(table{words, order}) })
					return
				}
				for range randomOrders {
					count++
					j.run(table{words, random.Perm(n)})
				}
			})
		})
		t.Logf("%d masters: %d tables in order", n, count)
	}
}

// TestSilenceIsAnErrorWhenTheTimeIsUp: the tables again, where an error is a master
// that says nothing. What is not decided without it is decided at the deadline.
func TestSilenceIsAnErrorWhenTheTimeIsUp(t *testing.T) {
	for n := 1; n <= 7; n++ {
		synctest.Test(t, func(t *testing.T) {
			j := newJudge(t, n)
			defer j.locker.Close()
			tables(n, func(words []int) { j.runSilent(words) })
		})
	}
}

func (j *judge) runSilent(words []int) {
	answering := table{words: words}
	for m, word := range words {
		if word != broken {
			answering.order = append(answering.order, m)
		}
	}
	done := make(chan outcome, 1)
	start := time.Now()
	go func() {
		lease, err := j.locker.Acquire(context.Background(), "k", 10*time.Second, "us")
		done <- outcome{lease, err, time.Now()}
	}()
	synctest.Wait()
	for _, m := range answering.order {
		j.masters[m].answer(words[m])
	}
	got := <-done
	v := answering.count(len(answering.order))
	n, majority := len(words), len(words)/2+1
	wins, loses := v[yes] >= majority, v[taken] > n-majority
	var want time.Duration
	if !wins && !loses {
		want = j.locker.opts.MasterTimeout
	}
	silent := n - len(answering.order)
	noQuorum := want > 0 && n-silent < majority
	if got.at.Sub(start) != want || wins != (got.err == nil) || errors.Is(got.err, ErrNoQuorum) != noQuorum || !wins && !noQuorum != errors.Is(got.err, ErrTaken) {
		j.t.Fatalf("%s and %d silent: after %s: %v", answering, silent, got.at.Sub(start), got.err)
	}
	var none *NoQuorumError
	if errors.As(got.err, &none) && len(none.Causes) != silent {
		j.t.Fatalf("%s and %d silent: %v", answering, silent, none)
	}
	for m, word := range words {
		if word == broken {
			j.masters[m].answer(yes) // after all: to be released at once
		}
	}
	if got.lease != nil {
		_ = got.lease.Release()
	}
	for i, m := range j.masters {
		if words[i] != taken && m.released == 0 {
			j.t.Fatalf("%s and %d silent: master %d keeps the key that it set late", answering, silent, i+1)
		}
		m.released = 0
	}
}

func TestAnEvenNumberOfMastersIsRefusedUnlessForced(t *testing.T) {
	for n := range 9 {
		masters := make([]Master, n)
		for i := range masters {
			masters[i] = &scripted{name: fmt.Sprintf("master%d", i+1)}
		}
		for _, forced := range []bool{false, true} {
			locker, err := over(Options{AnyNumber: forced}, masters...)
			if refused := n == 0 || n%2 == 0 && !forced; refused != (err != nil) {
				t.Errorf("%d masters, forced %t: %v", n, forced, err)
			}
			if err != nil {
				continue
			}
			if locker.Quorum() != n/2+1 {
				t.Errorf("%d masters: quorum %d", n, locker.Quorum())
			}
			locker.Close()
		}
	}
}
