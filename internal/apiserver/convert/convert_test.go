package convert

import (
	"testing"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/storetest"
)

// A field that is added to messages or runs must not be forgotten in the wire types.
func TestEachFieldReachesTheWire(t *testing.T) {
	m := storetest.Filled[store.Message]()
	for _, name := range storetest.Unset(Message(&m)) {
		t.Errorf("Message leaves %s empty", name)
	}
	r := storetest.Filled[store.Run]()
	for _, name := range storetest.Unset(Run(&r)) {
		t.Errorf("Run leaves %s empty", name)
	}
}
