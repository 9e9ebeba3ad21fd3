package backup

import (
	"fmt"
	"slices"
	"testing"

	"github.com/skein-dev/skein/internal/store"
)

// Each kept row may name several threads, and many rows name the same ones. A restore of many threads would ask the database for each.
func TestNamesOfKeptRowsAreLookedUpOnce(t *testing.T) {
	r := store.Restore{ID: "b", Namespace: "n"}
	at := map[string]string{"old": "n", "staged": staging(r), "victim": "other"}
	var asked []string
	w := &writer{r: r, arrived: map[string]bool{"new": true}, mayName: map[string]bool{}, origin: func(id string) (namespace string, there bool, err error) {
		asked = append(asked, id)
		namespace, there = at[id]
		return namespace, there, nil
	}}
	sum := func(thread, parent, root string) *decoded {
		table := byName("usage_sum")
		d := &decoded{table: table, columns: table.columns, values: make([]any, len(table.columns))}
		d.set("thread_id", thread)
		d.set("parent_id", parent)
		d.set("root_id", root)
		return d
	}
	for range 2 {
		for _, root := range []string{"old", "staged", "new", "gone"} {
			if err := w.ownNames(sum("new", "", root)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := []string{"old", "staged", "gone"}; !slices.Equal(asked, want) {
		t.Errorf("the threads %q were looked up, but %q have not arrived", asked, want)
	}
	for range 2 {
		if err := w.ownNames(sum("new", "gone", "victim")); err == nil {
			t.Error(fmt.Sprint("a row that names a thread of another namespace was taken; looked up: ", asked))
		}
	}
}
