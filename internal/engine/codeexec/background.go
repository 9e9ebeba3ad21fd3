package codeexec

import (
	"context"
	"errors"
	"time"
)

// AfterResponse is how long a run waits for background work that continues after its response (STA-06).
const AfterResponse = time.Minute

// ErrSlowWork reports that background work did not end within afterResponse.
var ErrSlowWork = errors.New("background work after the answer takes too long")

// SaveExternal waits for background work, and saves the state that code changed outside of a run: in an effect, or in a
// call from the API.
func (x *Execution) SaveExternal(ctx context.Context) error {
	if err := x.Host.Session.Wait(ctx); err != nil {
		return err
	}
	save := x.Host.Session.Save(true)
	if len(save.Ops) == 0 {
		return nil
	}
	if err := x.Host.State.Apply(ctx, save.Ops...); err != nil {
		return err
	}
	save.Done()
	return nil
}
