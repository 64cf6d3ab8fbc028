package steps

import (
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"
)

// maxOutput is how much of a step's output, or of its error, is kept.
const maxOutput = 64 << 10

// text makes what a program has written fit for a database and a page: valid
// UTF-8, without zero bytes.
func text(s string) string {
	if len(s) > 2*maxOutput {
		s = s[:2*maxOutput]
	}
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// A capture keeps the beginning and the end of what is written to it, and how much
// was cut between them. It may be written to and read at the same time.
type capture struct {
	mu   sync.Mutex
	head []byte
	tail []byte // a ring, once it is full
	next int    // where the ring goes on
	cut  int64
}

const half = maxOutput / 2

func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(p)
	if room := half - len(c.head); room > 0 {
		room = min(room, len(p))
		c.head, p = append(c.head, p[:room]...), p[room:]
	}
	if room := half - len(c.tail); room > 0 {
		room = min(room, len(p))
		c.tail, p = append(c.tail, p[:room]...), p[room:]
	}
	c.cut += int64(len(p))
	if skip := len(p) - half; skip > 0 { // would be written over in this very call
		p = p[skip:]
		c.next = (c.next + skip) % half
	}
	for len(p) > 0 {
		k := copy(c.tail[c.next:], p)
		c.next, p = (c.next+k)%half, p[k:]
	}
	return n, nil
}

func (c *capture) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	b.Write(c.head)
	if c.cut > 0 {
		fmt.Fprintf(&b, "\n[... %d bytes cut ...]\n", c.cut)
	}
	b.Write(c.tail[c.next:])
	b.Write(c.tail[:c.next])
	return b.String()
}

// Limits of what is shown of rows that a statement returned.
const (
	maxRows = 20
	maxCell = 200
)

// A table is the first rows that a statement returned, as text.
type table struct {
	b    strings.Builder
	rows int
}

func (t *table) header(names []string) {
	if len(names) > 0 {
		t.line(len(names), func(i int) string { return names[i] })
	}
}

// row adds a row; a nil cell is NULL.
func (t *table) row(cells [][]byte) {
	t.rows++
	if t.rows > maxRows || t.b.Len() > maxOutput/4 {
		return
	}
	t.line(len(cells), func(i int) string {
		if cells[i] == nil {
			return "NULL"
		}
		return clip(string(cells[i]))
	})
}

func (t *table) line(n int, cell func(int) string) {
	for i := range n {
		if i > 0 {
			t.b.WriteByte('\t')
		}
		t.b.WriteString(strings.NewReplacer("\t", " ", "\n", " ", "\r", " ").Replace(cell(i)))
	}
	t.b.WriteByte('\n')
}

// end says how many rows there were, of which the first are shown.
func (t *table) end() {
	if t.rows > maxRows {
		fmt.Fprintf(&t.b, "(%d rows, the first of them shown)\n", t.rows)
	} else {
		fmt.Fprintf(&t.b, "(%d rows)\n", t.rows)
	}
	t.rows = 0
}

func clip(cell string) string {
	if len(cell) <= maxCell {
		return cell
	}
	end := maxCell
	for end > 0 && !utf8.RuneStart(cell[end]) {
		end--
	}
	return cell[:end] + "…"
}
