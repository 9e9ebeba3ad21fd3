package main

import (
	"encoding/json"
	"testing"

	"sigs.k8s.io/yaml"
)

// Titles come from models, and may hold any character.
func TestObjectsOfBackupsKeepEachCharacter(t *testing.T) {
	for r := rune(0); r <= 0x10ffff; r++ {
		if r == 0x3000 {
			r = 0xd7f0 // as those between
		}
		if r >= 0xd800 && r < 0xe000 {
			r = 0xe000 // halves of surrogate pairs are no characters
		}
		if r == 0x10100 {
			r = 0x10fff0
		}
		title := "a" + string(r) + "\"b"
		data, err := encodeObject(map[string]any{"status": map[string]any{"title": title}})
		if err != nil {
			t.Fatalf("%U: %v", r, err)
		}
		raw, err := yaml.YAMLToJSON(data)
		if err != nil {
			t.Fatalf("%U: %v\n%s", r, err, data)
		}
		var back struct{ Status struct{ Title string } }
		if err := json.Unmarshal(raw, &back); err != nil {
			t.Fatalf("%U: %v", r, err)
		}
		if back.Status.Title != title {
			t.Fatalf("%U: %q became %q", r, title, back.Status.Title)
		}
	}
}
