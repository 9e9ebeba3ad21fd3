#!/bin/sh
# devcluster.sh COMMAND ...: builds what is missing (with progress), then runs hack/devcluster.
# It compiles the small bootstrap program once per version of its sources; that one does the rest.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd -P)
if ! command -v go >/dev/null 2>&1; then
	echo "devcluster: no 'go' in PATH: install Go 1.26 or newer (https://go.dev/dl)" >&2
	exit 1
fi
cache=${SKEIN_CACHE:-${HOME:-/tmp}/.cache/skein}/devcluster
key=$(cat "$here"/bootstrap/go.mod "$here"/bootstrap/*.go | cksum | tr ' ' '-')-$(uname -s)-$(uname -m)
boot=$cache/bootstrap-$key
if [ ! -x "$boot" ]; then
	mkdir -p "$cache"
	# Built under a name of its own and renamed: an interrupted or parallel build leaves nothing half-written.
	tmp=$cache/.bootstrap-$$
	trap 'rm -f "$tmp"' EXIT INT TERM
	CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOWORK=off go build -C "$here/bootstrap" -o "$tmp" .
	for old in "$cache"/bootstrap-*; do rm -f "$old"; done
	mv "$tmp" "$boot"
	trap - EXIT INT TERM
fi
SKEIN_DEVCLUSTER_SRC=$here exec "$boot" "$@"
