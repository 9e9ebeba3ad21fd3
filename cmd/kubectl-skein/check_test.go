package main

import (
	"fmt"
	"testing"
)

func TestCheckWarnsOfAPluginOfAnotherRelease(t *testing.T) {
	for _, c := range []struct{ plugin, image, level string }{
		{"v1.4.0 0123abc", "ghcr.io/skein-dev/manager:v1.4.2", levelOK},
		{"v1.4.0", "registry:5000/manager:v1.5.0@sha256:00", levelOK},
		{"v1.4.0", "manager:1.3.9", levelOK},
		{"v1.4.0", "ghcr.io/skein-dev/manager:v1.6.0", levelWarning},
		{"v1.6.1", "registry:5000/manager:v1.4.0", levelWarning},
		{"v2.0.0", "manager:v1.9.0", levelWarning},
		{"(devel) 0123abc", "manager:v1.9.0", levelOK},
		{"v0.0.0-20270131090000-0123456789ab", "manager:v1.9.0", levelOK},
		{"v1.4.0", "skein.dev/manager:dev", levelOK},
		{"v1.4.0", "registry:5000/manager@sha256:00", levelOK},
		{"v1.4.0", "", levelOK},
	} {
		var said []string
		compareVersions(c.plugin, c.image, func(level, remedy, format string, args ...any) {
			said = append(said, level)
			if text := fmt.Sprintf(format, args...); text == "" || level != levelOK && remedy == "" {
				t.Errorf("%s and %s: %q, remedy %q", c.plugin, c.image, text, remedy)
			}
		})
		if len(said) != 1 || said[0] != c.level {
			t.Errorf("%s and %s: said %v, want %s", c.plugin, c.image, said, c.level)
		}
	}
}
