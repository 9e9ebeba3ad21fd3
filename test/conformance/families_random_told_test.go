package conformance

import (
	"fmt"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// told looks whether parents were told of each end of their children once: by a result, which is a message or answers a call, and
// by the silent message about the life of the child.
func (w *trees) told(p *problems, all map[string]*looked) {
	children := map[string]*looked{} // by reference, which is the name of a Subagent
	for _, l := range all {
		for reference, c := range l.children {
			children[reference] = all[c.ThreadID]
		}
	}
	for id, l := range all {
		heard := map[string]int{}
		for _, m := range l.said {
			reference, _ := m.Metadata["subagent_id"].(string)
			kind, _ := m.Metadata["status_kind"].(string)
			if reference == "" || kind == "" {
				continue
			}
			as := "a result"
			if m.Role == runtimev1.RoleSystem {
				as = "a message"
			}
			heard[reference+" "+kind+" by "+as]++
		}
		t := w.threads[id]
		for reference, child := range children {
			if child == nil {
				continue
			}
			outcomes := map[string]int{}
			for _, r := range child.runs {
				outcomes[r.Status]++
			}
			for _, as := range []string{"a result", "a message"} {
				// A thread that was forked from the parent has heard some of it. So has a parent that was truncated, or has ended.
				completed := fmt.Sprintf("%s completed by %s", reference, as)
				n, runs := heard[completed], outcomes["succeeded"]
				if lost := child.record.ParentID == id && t != nil && t.living() && !l.endedWithParent(); n > runs || lost && n < runs {
					p.add("%s: %d times %s, which has succeeded %d times", l.object.Name, n, completed, runs)
				}
				for kind, most := range map[string]int{"created": 1, "adopted": 1, "terminated": 1, "failed": outcomes["failed"] + outcomes["stopped"] + 1} {
					if n := heard[fmt.Sprintf("%s %s by %s", reference, kind, as)]; n > most {
						p.add("%s: %d times %s %s by %s", l.object.Name, n, reference, kind, as)
					}
				}
			}
		}
	}
}
