package scheduledeffect

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/clip"
	"github.com/skein-dev/skein/internal/store"
)

const (
	// keptAnswers and keptResults bound the answers in the status. Each has a result at least, unless it was refused.
	keptAnswers = 100
	keptResults = 300
	// ownResults is how many results in a row an answer has. Further ones are counted with those of the same outcome.
	ownResults = 50
	// quotedRequest is how much of a request that cannot be read is quoted.
	quotedRequest = 200
)

// answer collects the outcomes of a request by hand. A nil answer is for due times that were not requested; its methods do nothing.
type answer struct{ skeinv1.EffectRequest }

func (b *batch) newAnswer(request string) *answer {
	return &answer{skeinv1.EffectRequest{Request: clip.Text(request, quotedRequest), AnsweredAt: metav1.NewTime(b.at.Truncate(time.Second))}}
}

// addFiring adds a firing that is recorded.
func (a *answer) addFiring(f *store.Firing) {
	outcome := skeinv1.RequestFired
	if f.Status == store.FiringQueued {
		outcome = skeinv1.RequestQueued
	}
	a.result(time.UnixMicro(f.Due), outcome, "", "")
}

// result adds what became of a due time.
func (a *answer) result(due time.Time, outcome, reason, message string) {
	if a == nil {
		return
	}
	due = due.UTC()
	same := func(r skeinv1.EffectRequestResult) bool {
		return r.Outcome == outcome && r.Reason == reason && r.Message == message
	}
	n := len(a.Results)
	at := n - 1
	if n > 0 && !same(a.Results[at]) {
		at = -1
		if n >= ownResults {
			at = slices.IndexFunc(a.Results, same)
		}
	}
	if at < 0 {
		t := metav1.NewMicroTime(due)
		a.Results = append(a.Results, skeinv1.EffectRequestResult{Time: t, Until: t, Count: 1, Outcome: outcome, Reason: reason, Message: message})
		return
	}
	a.Results[at].Until = metav1.NewMicroTime(due)
	a.Results[at].Count++
}

// encode returns the answer as the store keeps it.
func (a *answer) encode() json.RawMessage {
	data, err := json.Marshal(a.Results)
	if err != nil { // plain data cannot fail
		panic(err)
	}
	return data
}

// repeats marks the answer as one to a request that was answered before.
func (a *answer) repeats(was json.RawMessage) error {
	a.Repeated = true
	if len(was) == 0 { // an earlier release answered it
		return nil
	}
	if err := json.Unmarshal(was, &a.Results); err != nil {
		return fmt.Errorf("read the answer to a request by hand: %w", err)
	}
	return nil
}

// show writes answers into the status before the requests are removed, so that a client always finds either the request or its answer.
func (r *Reconciler) show(ctx context.Context, d *schedule, answers []*answer) error {
	before := d.object.DeepCopy()
	list := d.object.Status.Requests
	for _, a := range answers {
		list = slices.DeleteFunc(list, func(old skeinv1.EffectRequest) bool { return old.Request == a.Request })
		list = append(list, a.EffectRequest)
	}
	d.object.Status.Requests = newestAnswers(list)
	if err := r.Client.Status().Patch(ctx, d.object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write what became of requests by hand: %w", err)
	}
	return nil
}

// newestAnswers returns the answers, the newest last, for which the status has room.
func newestAnswers(list []skeinv1.EffectRequest) []skeinv1.EffectRequest {
	results := 0
	for i := range slices.Backward(list) {
		results += len(list[i].Results)
		if n := len(list) - i; n > keptAnswers || (n > 1 && results > keptResults) {
			return list[i+1:]
		}
	}
	return list
}

// refuseRequests answers all requests by hand of an object that fires nothing any more.
func (r *Reconciler) refuseRequests(ctx context.Context, d *schedule, why string) error {
	b := &batch{schedule: d, at: d.at}
	var answers []*answer
	for _, annotation := range []string{skeinv1.AnnotationRunAt, skeinv1.AnnotationBackfill} {
		for text := range strings.SplitSeq(d.object.Annotations[annotation], ",") {
			if text = strings.TrimSpace(text); text != "" {
				a := b.newAnswer(text)
				a.Refused = why
				answers = append(answers, a)
			}
		}
	}
	return r.finishRequests(ctx, d, answers)
}

// finishRequests shows the answers and removes the requests.
func (r *Reconciler) finishRequests(ctx context.Context, d *schedule, answers []*answer) error {
	if err := r.show(ctx, d, answers); err != nil {
		return err
	}
	before := d.object.DeepCopy()
	delete(d.object.Annotations, skeinv1.AnnotationRunAt)
	delete(d.object.Annotations, skeinv1.AnnotationBackfill)
	// The optimistic lock keeps a request that was added meanwhile.
	if err := r.Client.Patch(ctx, d.object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("remove an annotation: %w", err)
	}
	return nil
}
