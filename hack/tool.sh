#!/usr/bin/env bash
# tool.sh NAME: builds a tool that a go.mod below hack/tools declares, once per version of it, and prints the path of
# the program. The key in the cache is a hash of what determines the program: the module's files and the Go version.
# Tools whose dependencies conflict have separate modules.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
name=$1
module='' package=''
for file in "$root"/hack/tools/go.mod "$root"/hack/tools/*/go.mod; do
	package=$(sed -n "s|^tool[[:space:]]\{1,\}\([^ ]*/$name\)\$|\1|p" "$file")
	if [ -n "$package" ]; then
		module=${file%/go.mod}
		break
	fi
done
if [ -z "$module" ]; then
	echo "tool.sh: no go.mod below hack/tools declares a tool called $name" >&2
	exit 1
fi
cache=${SKEIN_CACHE:-${HOME:-/tmp}/.cache/skein}/tools
key=$({ cat "$module/go.mod" "$module/go.sum"; go env GOVERSION GOOS GOARCH; } | cksum | cut -d ' ' -f 1)
program=$cache/$name-$key
if [ ! -x "$program" ]; then
	mkdir -p "$cache"
	# Built under another name and renamed, so that an interrupt leaves nothing incomplete.
	new=$cache/.$name-$$
	trap 'rm -f "$new"' EXIT
	# One thread for each compiler, and less garbage collection: see docs/adr/0037-cold-builds.md.
	GOMAXPROCS=${GOMAXPROCS:-1} GOGC=${GOGC:-400} CGO_ENABLED=0 "$root/hack/step.sh" "Build $name" go build -C "$module" -buildvcs=false -p "${JOBS:-2}" -ldflags '-s -w' -o "$new" "$package"
	rm -f "$cache/$name"-*
	mv "$new" "$program"
fi
echo "$program"
