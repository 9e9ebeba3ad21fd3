package scheduledeffect

import (
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// A field of spec.retry that reaches no attempt would be accepted and ignored.
func TestEachFieldOfRetryReachesTheAttempts(t *testing.T) {
	policy := func(r skeinv1.EffectRetry) any {
		return *targetOf(&skeinv1.ScheduledEffectSpec{Retry: &r}).Retry
	}
	values := map[reflect.Type]any{
		reflect.TypeFor[int32](): int32(7), reflect.TypeFor[*metav1.Duration](): &metav1.Duration{Duration: 17 * time.Second}, reflect.TypeFor[[]int32](): []int32{418},
	}
	fields := reflect.TypeFor[skeinv1.EffectRetry]()
	for i := range fields.NumField() {
		f := fields.Field(i)
		v, ok := values[f.Type]
		if !ok {
			t.Errorf("%s has the type %s: add a value of it to this test", f.Name, f.Type)
			continue
		}
		var r skeinv1.EffectRetry
		reflect.ValueOf(&r).Elem().Field(i).Set(reflect.ValueOf(v))
		if reflect.DeepEqual(policy(r), policy(skeinv1.EffectRetry{})) {
			t.Errorf("targetOf ignores spec.retry.%s", f.Name)
		}
	}
}
