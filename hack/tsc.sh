#!/usr/bin/env bash
# tsc.sh ARGS...: runs the TypeScript compiler that hack/typescript pins, with the types of zod beside it. It is
# fetched into the cache once per version of the lock file.
#   tsc.sh install    fetch it and print the folder that contains node_modules
#   tsc.sh console    check the types of the console's page
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
if [ "${1:-}" = console ]; then
	packages=$("$here/npm.sh" install console)
	# The compiler looks for packages in the folders above a source, so it gets a copy of the sources beside the packages.
	copy=$(mktemp -d "${TMPDIR:-/tmp}/skein-console.XXXXXX")
	trap 'rm -rf "$copy"' EXIT
	cp -R "$here"/../cmd/kubectl-skein/internal/console/page/{src,tsconfig.json} "$copy"
	ln -s "$packages/node_modules" "$copy/node_modules"
	cd "$copy" && "$dir/node_modules/.bin/tsc" --project .
	exit
fi
exec "$dir/node_modules/.bin/tsc" "$@"
