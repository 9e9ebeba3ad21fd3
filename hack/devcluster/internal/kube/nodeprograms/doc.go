// Package nodeprograms adds the upstream programs of a node to those of package kube. They exist on Linux only.
package nodeprograms
