package app

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/skein-dev/skein/internal/store"
)

// fileQuota returns the default quota of files of a thread (FIL-08).
func (o *Options) fileQuota() (q store.FileQuota, err error) {
	if o.FileQuotaFiles < 0 {
		return q, fmt.Errorf("--file-quota-files=%d: give 0 for no bound, or a positive number", o.FileQuotaFiles)
	}
	q.Files = o.FileQuotaFiles
	if o.FileQuotaBytes == "" {
		return q, nil
	}
	n, err := resource.ParseQuantity(o.FileQuotaBytes)
	if err != nil || n.Sign() < 0 {
		return q, fmt.Errorf("--file-quota-bytes=%s: give an amount of bytes such as 500Mi, or 0 for no bound", o.FileQuotaBytes)
	}
	q.Bytes = n.Value()
	return q, nil
}
