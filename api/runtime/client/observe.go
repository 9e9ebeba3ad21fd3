package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// ObserveOptions say what to observe of a thread.
type ObserveOptions struct {
	// Include names the parts of the value besides the record: runtimev1.ObserveMessages, ObserveState, ObserveValues.
	// nil means messages and state.
	Include []string
	// NoFollow ends after the present value.
	NoFollow bool
}

// Observed is what a thread was like at one version.
type Observed struct {
	runtimev1.Observation
	// Now is the whole value, with the patch applied: the JSON of a runtimev1.ObservedThread.
	Now json.RawMessage
}

// Thread decodes the value.
func (o *Observed) Thread() (*runtimev1.ObservedThread, error) {
	v := new(runtimev1.ObservedThread)
	if err := json.Unmarshal(o.Now, v); err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	return v, nil
}

// Observe returns the thread's present value and then each change, at most one per 100 ms (EVT-02). It reconnects by
// itself when the connection ends, and begins again with the present value. The stream ends with ctx (no error), with
// the thread (ErrThreadDeleted), after the value with NoFollow, or with the error of a server that refuses.
func (t *Thread) Observe(ctx context.Context, o ObserveOptions) iter.Seq2[Observed, error] {
	params := map[string]string{}
	if o.NoFollow {
		params["follow"] = "false"
	}
	if o.Include != nil {
		params["include"] = strings.Join(append([]string{runtimev1.ObserveThread}, o.Include...), ",")
	}
	return func(yield func(Observed, error) bool) {
		s := &stream{}
		for {
			progress, err := t.observeOnce(ctx, params, yield)
			switch {
			case errors.Is(err, errDone), ctx.Err() != nil:
				return
			case err != nil && (final(err) || !s.connected && !progress):
				yield(Observed{}, err)
				return
			}
			if progress {
				s.connected, s.pause = true, initialPause()
			}
			if !s.wait(ctx) {
				return
			}
		}
	}
}

// observeOnce reads one connection until it ends.
func (t *Thread) observeOnce(ctx context.Context, params map[string]string, yield func(Observed, error) bool) (progress bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := t.openStream(ctx, cancel, runtimev1.SubresourceObserve, params)
	if err != nil {
		return false, err
	}
	defer func() { _ = body.Close() }()
	var now []byte
	err = readEvents(body, func(in runtimev1.Observation) (err error) {
		if now, err = applied(now, in); err != nil {
			return err
		}
		progress = true
		if !yield(Observed{Observation: in, Now: now}, nil) {
			return errDone
		}
		return nil
	})
	return progress, err
}

// applied returns the value after an observation.
func applied(now []byte, in runtimev1.Observation) ([]byte, error) {
	if in.Patch == nil {
		return in.Value, nil
	}
	patch, err := jsonpatch.DecodePatch(in.Patch)
	if err == nil {
		now, err = patch.Apply(now)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	return now, nil
}

// FlushVersion waits until version v of the thread is on disk, 5 s at most, and returns the present version (EVT-04).
// After that it returns an error for which apierrors.IsTimeout is true.
func (t *Thread) FlushVersion(ctx context.Context, v int64) (int64, error) {
	out, err := readAs[runtimev1.FlushedVersion](ctx, t, map[string]string{"v": strconv.FormatInt(v, 10)}, runtimev1.SubresourceFlush)
	if err != nil {
		return 0, err
	}
	return out.V, nil
}
