package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// maxMapped is how many threads a map has by default.
const maxMapped = 200

func newMap(p *plugin) *cobra.Command {
	var output string
	limit := maxMapped
	cmd := &cobra.Command{
		Use:   "map THREAD",
		Short: "Draw how a thread is related to others: children, forks, handoffs and mentions",
		Long: `Draw how a thread is related to others: children, forks, handoffs and mentions. The map has the whole family, and the threads
that it mentions or that mention it.`,
		Example: `  # As text
  kubectl skein map orders

  # As a picture
  kubectl skein map orders -o dot | dot -Tsvg > orders.svg`,
		Args: exactly("THREAD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			draw, known := map[string]func(*threadMap) string{"text": (*threadMap).text, "mermaid": (*threadMap).mermaid, "dot": (*threadMap).dot}[output]
			if !known {
				return fmt.Errorf("--output=%s: give text, mermaid or dot", output)
			}
			if limit < 1 {
				return fmt.Errorf("--limit=%d: give a number from 1 on", limit)
			}
			cfg, ns, err := p.config()
			if err != nil {
				return err
			}
			c, err := runtimeclient.New(cfg)
			if err != nil {
				return err
			}
			m, err := gatherMap(cmd.Context(), func(name string) mapSource { return c.Thread(ns, name) }, args[0], limit)
			if err != nil {
				return err
			}
			fmt.Fprint(p.Out, draw(m))
			if m.more {
				fmt.Fprintf(p.ErrOut, "The map ends after %d threads; --limit raises that.\n", limit)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "Output format: text, mermaid or dot.")
	cmd.Flags().IntVar(&limit, "limit", limit, "Draw at most this number of threads.")
	return cmd
}

// Kinds of edges besides the types of relationships.
const (
	edgeChild   = "child"
	edgeFork    = "fork"
	edgeHandoff = "handoff"
	edgeMention = "mention"
)

// threadMap is threads with what relates them.
type threadMap struct {
	start   string // id of the thread that was asked for
	threads []*mapThread
	edges   []mapEdge
	more    bool // the map ends before the family does
}

// mapThread is one thread of a map. A thread that is gone has only an id.
type mapThread struct {
	id, name, title, agent, state string
	messages                      int64
}

// mapEdge leads from a parent to a child, from an origin to what came of it, or from a thread to one that it mentions.
type mapEdge struct {
	from, to, kind string
	index          int64 // the message at which it was made; -1 for none
	comment        string
}

// mapSource is the part of a thread's client that a map needs.
type mapSource interface {
	Get(ctx context.Context) (*runtimev1.ThreadRecord, error)
	Relationships(ctx context.Context, p runtimeclient.Page) (*runtimev1.RelationshipList, error)
	Children(ctx context.Context, p runtimeclient.Page) (*runtimev1.ChildList, error)
}

// gatherMap reads the family of a thread, nearest relatives first, and then the threads that are only mentioned. The relatives of these are
// not part of the family.
func gatherMap(ctx context.Context, open func(name string) mapSource, name string, limit int) (*threadMap, error) {
	m := &threadMap{}
	known := map[string]bool{}
	family, mentioned := []string{name}, []string(nil)
	for len(family)+len(mentioned) > 0 {
		queue, isFamily := &family, true
		if len(family) == 0 {
			queue, isFamily = &mentioned, false
		}
		next := (*queue)[0]
		*queue = (*queue)[1:]
		if known[next] {
			continue
		}
		if len(m.threads) == limit {
			m.more = true
			break
		}
		source := open(next)
		rec, err := source.Get(ctx)
		if errors.Is(err, runtimeclient.ErrNotFound) && m.start != "" {
			known[next] = true
			m.threads = append(m.threads, &mapThread{id: next, state: "gone"})
			continue
		}
		if err != nil {
			return nil, err
		}
		known[rec.ThreadID] = true
		if m.start == "" {
			m.start = rec.ThreadID
		}
		m.threads = append(m.threads, mappedThread(rec))
		if !isFamily {
			continue
		}
		if rec.ParentID != "" {
			family = append(family, rec.ParentID)
		}
		if err := m.children(ctx, source, rec.ThreadID, func(id string) { family = append(family, id) }); err != nil {
			return nil, err
		}
		err = m.relationships(ctx, source, rec.ThreadID, func(r *runtimev1.Relationship) {
			if r.Type == edgeMention {
				mentioned = append(mentioned, r.ThreadID)
			} else {
				family = append(family, r.ThreadID)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	m.tidy()
	return m, nil
}

func mappedThread(rec *runtimev1.ThreadRecord) *mapThread {
	t := &mapThread{id: rec.ThreadID, name: rec.Name, title: rec.Title, agent: rec.AgentID, messages: rec.MessageCount}
	switch {
	case rec.Terminated != nil:
		t.state = "terminated"
	case rec.Retained != nil:
		t.state = "retained"
	case rec.Archived:
		t.state = "archived"
	}
	return t
}

func (m *threadMap) children(ctx context.Context, source mapSource, id string, found func(id string)) error {
	for offset := 0; ; {
		page, err := source.Children(ctx, runtimeclient.Page{Limit: runtimev1.MaxPageSize, Offset: offset})
		if err != nil {
			return err
		}
		for i := range page.Children {
			if child := &page.Children[i]; child.ThreadID != "" {
				m.edges = append(m.edges, mapEdge{from: id, to: child.ThreadID, kind: edgeChild, index: -1, comment: child.Status})
				found(child.ThreadID)
			}
		}
		if offset += len(page.Children); !page.HasMore || len(page.Children) == 0 {
			return nil
		}
	}
}

func (m *threadMap) relationships(ctx context.Context, source mapSource, id string, found func(*runtimev1.Relationship)) error {
	for offset := 0; ; {
		page, err := source.Relationships(ctx, runtimeclient.Page{Limit: runtimev1.MaxPageSize, Offset: offset})
		if err != nil {
			return err
		}
		for i := range page.Relationships {
			r := &page.Relationships[i]
			e := mapEdge{from: id, to: r.ThreadID, kind: r.Type, index: -1, comment: r.Comment}
			if r.Role != "parent" {
				e.from, e.to = e.to, e.from
			}
			if r.MessageIndex != nil {
				e.index = *r.MessageIndex
			}
			m.edges = append(m.edges, e)
			found(r)
		}
		if offset += len(page.Relationships); !page.HasMore || len(page.Relationships) == 0 {
			return nil
		}
	}
}

// tidy keeps each edge once, and those alone whose ends are on the map.
func (m *threadMap) tidy() {
	type key struct{ from, to, kind string }
	seen, here := map[key]bool{}, map[string]bool{}
	for _, t := range m.threads {
		here[t.id] = true
	}
	m.edges = slices.DeleteFunc(m.edges, func(e mapEdge) bool {
		k := key{e.from, e.to, e.kind}
		drop := seen[k] || !here[e.from] || !here[e.to]
		seen[k] = true
		return drop
	})
}
