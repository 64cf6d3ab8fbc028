package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"quorate/jobs"
	"quorate/web"
)

func planCommand() *cobra.Command {
	var d door
	var path string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Say what a config would change in what runs now",
		Long: `Say what a config would change in what runs now: which jobs are new, which say
something else, which are gone, and which replicas run what the file says. Nothing
is changed. Variables are those of this environment: give it what the replicas have.
Secrets are not compared, and servers neither.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := loadJobs(path, thisWorld())
			if err != nil {
				return err
			}
			client, err := d.client()
			if err != nil {
				return err
			}
			p, err := compare(cmd.Context(), file, client)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(p)
			}
			p.print(cmd.OutOrStdout())
			return nil
		},
	}
	configFlag(cmd, &path)
	d.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "as one JSON object")
	return cmd
}

// loadJobs reads the jobs of a config, whatever it says about servers.
func loadJobs(path string, w world) ([]*jobs.Job, error) {
	c, err := loadConfig(path, w)
	var bad *configError
	if errors.As(err, &bad) {
		bad.problems = slices.DeleteFunc(bad.problems, func(p problem) bool {
			return len(p.key) > 0 && slices.Contains([]string{"replica", "redlock", "store", "web"}, p.key[0])
		})
		if len(bad.problems) == 0 {
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	return c.jobList(), nil
}

// A plan is what would change. Its JSON names are a promise.
type plan struct {
	Revision  string        `json:"revision"` // of the file
	Added     []string      `json:"added"`
	Changed   []jobChange   `json:"changed"`
	Removed   []string      `json:"removed"`
	Unchanged []string      `json:"unchanged"`
	Replicas  []web.Replica `json:"replicas"`
}

type jobChange struct {
	Job  string      `json:"job"`
	Keys []keyChange `json:"keys"` // none: it is in what is not shown
}

type keyChange struct {
	Key string `json:"key"`
	Was string `json:"was"`
	Is  string `json:"is"`
}

// compare asks a replica for what runs.
func compare(ctx context.Context, file []*jobs.Job, client *web.Client) (*plan, error) {
	revision, err := jobs.Revision(file...)
	if err != nil {
		return nil, err
	}
	p := &plan{Revision: revision, Added: []string{}, Changed: []jobChange{}, Removed: []string{}, Unchanged: []string{}}
	running, err := client.Jobs(ctx)
	if err != nil {
		return nil, err
	}
	runs := map[string]web.Job{}
	for _, j := range running {
		runs[j.Name] = j
	}
	for _, j := range file {
		was, ok := runs[j.Name]
		delete(runs, j.Name)
		is, err := jobs.Revision(j)
		switch {
		case err != nil:
			return nil, err
		case !ok:
			p.Added = append(p.Added, j.Name)
		case was.Revision == is:
			p.Unchanged = append(p.Unchanged, j.Name)
		default:
			if was, err = client.Job(ctx, j.Name); err != nil {
				return nil, err
			}
			p.Changed = append(p.Changed, jobChange{j.Name, keyChanges(was.Definition, j.Definition())})
		}
	}
	p.Removed = slices.AppendSeq(p.Removed, maps.Keys(runs))
	slices.Sort(p.Removed)
	cluster, err := client.Cluster(ctx)
	p.Replicas = cluster.Replicas
	return p, err
}

func keyChanges(was, is map[string]string) []keyChange {
	all := maps.Clone(is)
	maps.Copy(all, was)
	changes := []keyChange{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if was[key] != is[key] {
			changes = append(changes, keyChange{key, was[key], is[key]})
		}
	}
	return changes
}

func (p *plan) print(out io.Writer) {
	on := isTerminal(out)
	for _, name := range p.Added {
		fmt.Fprintln(out, paint(on, green, "+ "+name))
	}
	for _, c := range p.Changed {
		fmt.Fprintln(out, paint(on, yellow, "~ "+c.Job))
		if len(c.Keys) == 0 {
			fmt.Fprintln(out, "    in an address, of which only the server is shown")
		}
		for _, k := range c.Keys {
			k.print(out, on)
		}
	}
	for _, name := range p.Removed {
		fmt.Fprintln(out, paint(on, red, "- "+name)+"   its history stays")
	}
	if len(p.Added)+len(p.Changed)+len(p.Removed) == 0 {
		fmt.Fprintln(out, "Nothing changes: this is what runs.")
	} else {
		fmt.Fprintf(out, "%d added, %d changed, %d removed, %d as they are.\n", len(p.Added), len(p.Changed), len(p.Removed), len(p.Unchanged))
	}
	fmt.Fprintln(out)
	t := newTable(out, "REPLICA", "REVISION", "SEEN")
	for _, r := range p.Replicas {
		what := "  another one"
		if r.Revision == p.Revision {
			what = "  this file"
		}
		seen := "now"
		if !r.Live {
			seen = when(r.Seen)
		}
		t.row(r.Name, r.Revision+what, seen)
	}
	t.print()
}

func (k keyChange) print(out io.Writer, colour bool) {
	was, is := strings.Split(k.Was, "\n"), strings.Split(k.Is, "\n")
	if len(was) == 1 && len(is) == 1 && len(k.Was)+len(k.Is) < 80 {
		fmt.Fprintf(out, "    %s  %s → %s\n", k.Key, orDash(oneLine(k.Was)), orDash(oneLine(k.Is)))
		return
	}
	fmt.Fprintf(out, "    %s\n", k.Key)
	for _, line := range lineChanges(was, is) {
		code := red
		if line[0] == '+' {
			code = green
		}
		fmt.Fprintln(out, "      "+paint(colour, code, oneLine(line)))
	}
}

// lineChanges returns the lines that are not in both texts, - and + in front, in
// their order: what is left beside the longest sequence that they share.
func lineChanges(was, is []string) (changes []string) {
	if len(was)*len(is) > 1e6 {
		return []string{fmt.Sprintf("- %d lines", len(was)), fmt.Sprintf("+ %d lines", len(is))}
	}
	longest := make([][]int, len(was)+1)
	for i := range longest {
		longest[i] = make([]int, len(is)+1)
	}
	for i := len(was) - 1; i >= 0; i-- {
		for j := len(is) - 1; j >= 0; j-- {
			if longest[i][j] = max(longest[i+1][j], longest[i][j+1]); was[i] == is[j] {
				longest[i][j] = longest[i+1][j+1] + 1
			}
		}
	}
	i, j := 0, 0
	for i < len(was) || j < len(is) {
		switch {
		case i < len(was) && j < len(is) && was[i] == is[j]:
			i, j = i+1, j+1
		case j == len(is) || i < len(was) && longest[i+1][j] >= longest[i][j+1]:
			changes, i = append(changes, "- "+was[i]), i+1
		default:
			changes, j = append(changes, "+ "+is[j]), j+1
		}
	}
	return changes
}
