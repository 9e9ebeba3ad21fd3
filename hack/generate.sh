#!/usr/bin/env bash
# generate.sh [DIR]: writes every generated file of the repository below DIR (default: the repository itself), at its
# path in the repository. `make verify` generates into an empty folder and compares.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
out=$(mkdir -p "${1:-$root}" && cd "${1:-$root}" && pwd -P)
cd "$root"
controller_gen=$(hack/tool.sh controller-gen)
tools=$(mktemp -d "${TMPDIR:-/tmp}/skein-generate.XXXXXX")
trap 'rm -rf "$tools"' EXIT

# generator builds a program of this repository, and prints its path. "set -e" does not hold in $(…).
generator() {
	hack/step.sh "Build $1" go build -o "$tools/" "./$1" && echo "$tools/${1##*/}"
}
what=${WHAT:-deepcopy manifests reference orders console}

for w in $what; do
	case $w in
	deepcopy)
		"$controller_gen" object:headerFile=hack/boilerplate.go.txt paths=./api/v1alpha1 output:object:dir="$out/api/v1alpha1"
		;;
	manifests)
		"$controller_gen" crd paths=./api/v1alpha1 output:crd:dir="$out/config/crd/bases"
		program=$(generator hack/crds)
		"$program" -dir "$out/config/crd/bases"
		"$controller_gen" rbac:roleName=skein-manager paths=./internal/... paths=./cmd/... output:rbac:dir="$out/config/rbac"
		;;
	reference)
		# From the newly generated schemas, if there are any.
		crds=$out/config/crd/bases
		[ -d "$crds" ] || crds=config/crd/bases
		mkdir -p "$out/docs/reference"
		program=$(generator hack/apidocs)
		"$program" -crds "$crds" >"$out/docs/reference/.api.md"
		mv "$out/docs/reference/.api.md" "$out/docs/reference/api.md"
		;;
	orders)
		mkdir -p "$out/hack/demo"
		program=$(generator hack/demo/orders)
		"$program" >"$out/hack/demo/.orders.csv"
		mv "$out/hack/demo/.orders.csv" "$out/hack/demo/orders.csv"
		;;
	console)
		page=cmd/kubectl-skein/internal/console/page
		program=$(generator $page/generate)
		"$program" -out "$out/$page/dist"
		;;
	*)
		echo "generate.sh: nothing is called $w" >&2
		exit 1
		;;
	esac
done
