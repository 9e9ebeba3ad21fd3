#!/usr/bin/env bash
# tool.sh NAME: builds a tool that hack/tools/go.mod declares, once for each version of it, and prints the
# path of the program. The cache is keyed by what decides the program: the module's files and Go itself.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
name=$1
package=$(sed -n "s|^\(tool \)\{0,1\}[[:space:]]*\([^ ]*/$name\)\$|\2|p" "$root/hack/tools/go.mod" | head -n 1)
if [ -z "$package" ]; then
	echo "tool.sh: hack/tools/go.mod declares no tool called $name" >&2
	exit 1
fi
cache=${SKEIN_CACHE:-${HOME:-/tmp}/.cache/skein}/tools
key=$({ cat "$root/hack/tools/go.mod" "$root/hack/tools/go.sum"; go env GOVERSION GOOS GOARCH; } | cksum | cut -d ' ' -f 1)
program=$cache/$name-$key
if [ ! -x "$program" ]; then
	mkdir -p "$cache"
	# Built under a name of its own and renamed: an interrupt leaves nothing half-written.
	new=$cache/.$name-$$
	trap 'rm -f "$new"' EXIT
	CGO_ENABLED=0 "$root/hack/step.sh" "Build $name" go build -C "$root/hack/tools" -buildvcs=false -p "${JOBS:-2}" -ldflags '-s -w' -o "$new" "$package"
	rm -f "$cache/$name"-*
	mv "$new" "$program"
fi
echo "$program"
