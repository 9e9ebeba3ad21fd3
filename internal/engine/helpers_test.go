package engine_test

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const hour = time.Hour

func ms(n int) *metav1.Duration {
	return &metav1.Duration{Duration: time.Duration(n) * time.Millisecond}
}
