package mcptool

import "testing"

// A server may close the connection between the end of a refresh and the look of the call that waited for it.
func TestACallWithoutASessionHasAnError(t *testing.T) {
	over := make(chan struct{})
	close(over)
	v := &server{refreshing: over}
	if s, err := v.connected(t.Context()); s != nil || err == nil {
		t.Errorf("connected returned %v and the error %v", s, err)
	}
}
