package console

import (
	"crypto/rand"
	"crypto/subtle"
	"sync"
	"time"
)

// openingFor is how long a browser that the command opens may take to ask for the page.
const openingFor = time.Minute

// opening is a token that opens one session. The command gives it to the program that opens a browser, whose arguments other users of the machine can
// read while it runs. mu guards the fields.
type opening struct {
	mu    sync.Mutex
	token string // "" when there is none
	until time.Time
}

// create returns a new token. An earlier one is of no use any more.
func (o *opening) create() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.token, o.until = rand.Text(), time.Now().Add(openingFor)
	return o.token
}

// use reports whether a token opens a session, which it does once.
func (o *opening) use(token string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(o.token)) != 1 {
		return false
	}
	o.token = ""
	return time.Now().Before(o.until)
}
