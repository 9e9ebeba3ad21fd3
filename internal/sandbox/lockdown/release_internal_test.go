//go:build linux && (amd64 || arm64)

package lockdown

import "testing"

func TestOlderThan(t *testing.T) {
	for release, want := range map[string]bool{
		"4.4.0":                  true, // gVisor
		"4.18.0-553.el8.x86_64":  true,
		"5.0.0":                  true,
		"5.4.0-150-generic":      true,
		"5.4.250":                true,
		"5.5.0-rc1":              false,
		"5.5":                    false,
		"5.10.0-30-amd64":        false,
		"5.15.153.1-microsoft":   false,
		"6.1.0":                  false,
		"6.18+":                  false,
		"10.0.1":                 false,
		"":                       false,
		"5":                      false,
		"next-20260101":          false,
		"5.x":                    false,
		"5.14.0-427.13.1.el9_4+": false,
	} {
		if got := olderThan(release, 5, 5); got != want {
			t.Errorf("%q is older than 5.5: %t, not %t", release, got, want)
		}
	}
}
