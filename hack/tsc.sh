#!/usr/bin/env bash
# tsc.sh ARGS...: runs the TypeScript compiler that hack/typescript pins, with the types of zod beside it. It is
# fetched into the cache once per version of the lock file.
#   tsc.sh install    fetch it and print the folder that contains node_modules
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
"$here/need.sh" node=nodejs npm=npm || exit 1
cache=${SKEIN_CACHE:-${HOME:-/tmp}/.cache/skein}/typescript
key=$(cat "$here"/typescript/package*.json | cksum | cut -d ' ' -f 1)
dir=$cache/$key
if [ ! -e "$dir/node_modules/.bin/tsc" ]; then
	mkdir -p "$cache"
	# Fetched under another name and renamed, so that an interrupt leaves nothing incomplete.
	new=$cache/.new-$$
	trap 'rm -rf "$new"' EXIT
	mkdir "$new"
	cp "$here"/typescript/package*.json "$new"
	"$here/step.sh" "Fetch TypeScript" npm ci --prefix "$new" --no-audit --no-fund --ignore-scripts --loglevel error >&2
	mv -T "$new" "$dir" 2>/dev/null || [ -e "$dir/node_modules/.bin/tsc" ] # another was faster
fi
if [ "${1:-}" = install ]; then
	echo "$dir"
	exit 0
fi
exec "$dir/node_modules/.bin/tsc" "$@"
