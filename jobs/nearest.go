package jobs

import "strings"

// Nearest returns the name that was most likely meant by a word that is none of
// them, or nothing where no name is near.
func Nearest(word string, names []string) (best string) {
	word = strings.ToLower(word)
	if len(word) > 100 {
		return "" // nobody types that by mistake
	}
	least := len(word)/2 + 1
	for _, name := range names {
		if d := distance(word, strings.ToLower(name)); d < least {
			best, least = name, d
		}
	}
	return best
}

// choose says what a word should have been: one of these.
func choose(word string, names []string) string {
	last := len(names) - 1
	want := "want " + strings.Join(names[:last], ", ") + " or " + names[last]
	if near := Nearest(word, names); near != "" {
		want += ": did you mean \"" + near + "\"?"
	}
	return want
}

// distance counts the letters to insert, delete, replace or swap.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
