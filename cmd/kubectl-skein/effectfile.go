package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// effectOf reads the ScheduledEffect in a file. The API server judges the rest when the file is applied.
func (p *plugin) effectOf(file string, o *skeinv1.ScheduledEffect) error {
	read := func() ([]byte, error) { return os.ReadFile(file) }
	if file == "-" {
		read = func() ([]byte, error) { return io.ReadAll(p.In) }
	}
	data, err := read()
	if err != nil {
		return err
	}
	if data, err = onlyDocument(data); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := yaml.Unmarshal(data, o); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if o.Kind != "ScheduledEffect" {
		return fmt.Errorf("%s holds the kind %q: give a file with one ScheduledEffect", file, o.Kind)
	}
	if o.Undecodable != "" {
		return errors.New(o.Undecodable)
	}
	// The object itself forgives unknown fields, as the API server's cache has to.
	var strict struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ObjectMeta           `json:"metadata"`
		Spec            skeinv1.ScheduledEffectSpec `json:"spec"`
		Status          map[string]any              `json:"status"`
	}
	if err := yaml.UnmarshalStrict(data, &strict); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return checkTimes(&o.Spec)
}

// onlyDocument returns the one document of a file that is not empty.
func onlyDocument(data []byte) (only []byte, err error) {
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return only, nil
		}
		if err != nil {
			return nil, err
		}
		var content any
		if err := yaml.Unmarshal(doc, &content); err != nil {
			return nil, err
		}
		if content == nil {
			continue
		}
		if only != nil {
			return nil, errors.New("it holds several objects: give a file with one ScheduledEffect")
		}
		only = doc
	}
}

// The longest delay of spec.after, and the longest jitter.
const (
	longestAfter  = 365 * 24 * time.Hour
	longestJitter = 24 * time.Hour
)

// checkTimes refuses times that the API server would refuse, since what it prints would be of no use.
func checkTimes(s *skeinv1.ScheduledEffectSpec) error {
	given := 0
	for _, is := range []bool{s.At != nil, s.After != nil, len(s.Schedules) > 0} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return errors.New("spec: set exactly one of at, after and schedules")
	case s.After != nil && (s.After.Duration < 0 || s.After.Duration > longestAfter):
		return errors.New("spec.after: give a delay from 0s, which is now, to 8760h, which is a year, or set at")
	case s.Jitter != nil && (s.Jitter.Duration < 0 || s.Jitter.Duration > longestJitter):
		return errors.New("spec.jitter: give a duration up to 24h such as 30s")
	case s.MaxFirings != nil && *s.MaxFirings < 1:
		return errors.New("spec.maxFirings: give a number from 1")
	}
	return nil
}
