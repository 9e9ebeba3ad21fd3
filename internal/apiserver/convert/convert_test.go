package convert

import (
	"testing"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/storetest"
)

// A field that is added to runs must not be forgotten in the wire types. message_test.go has the same for messages.
func TestEachFieldOfARunReachesTheWire(t *testing.T) {
	r := storetest.Filled[store.Run]()
	for _, name := range storetest.Unset(Run(&r)) {
		t.Errorf("Run leaves %s empty", name)
	}
}
