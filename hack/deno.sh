#!/usr/bin/env bash
# deno.sh COMMAND: Deno, the program of the sandboxes' v8 engine, of one pinned version.
#   install   fetch it from the npm registry into the cache, where it is not there yet, and check its sum
#   bin       print the program
#   version   print the version
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)

version=2.9.6
# The sums of the packages, as the registry's "dist.integrity" has them.
case $(uname -s)-$(uname -m) in
Linux-x86_64)
	package=@deno/linux-x64-glibc
	sum=3md4TKLCuzsLDmfOoC5KN7NAZaxSVkMgm64vg6foD00JBADCpYS2/5QqXfzgnP5ZQz3iLP9vBQJtEgc116OAoQ==
	;;
*)
	echo "deno.sh: the v8 engine is for Linux on x86-64 so far: add the package of $(uname -s) on $(uname -m) and its sum to hack/deno.sh" >&2
	exit 1
	;;
esac
program=${SKEIN_CACHE:-${HOME:-/tmp}/.cache/skein}/deno/$version/deno

fetch() {
	local dir=$1
	cd "$dir"
	npm pack --silent "$package@$version" >/dev/null
	local got
	got=$(openssl dgst -sha512 -binary ./*.tgz | base64 -w0)
	if [ "$got" != "$sum" ]; then
		echo "deno.sh: $package@$version has the sum $got, not $sum: it is not used" >&2
		exit 1
	fi
	tar xzf ./*.tgz package/deno
	chmod 0755 package/deno
}

case "${1:-}" in
install)
	[ -x "$program" ] && exit 0
	"$here/need.sh" npm=npm openssl=openssl
	mkdir -p "$(dirname "$program")"
	# Unpacked elsewhere and renamed: an interrupt leaves nothing half-written.
	tmp=$(mktemp -d "$(dirname "$program")/.new.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	"$here/step.sh" "Fetch Deno $version" bash -c "$(declare -p package version sum); $(declare -f fetch); set -euo pipefail; fetch $(printf %q "$tmp")"
	mv "$tmp/package/deno" "$program"
	;;
bin)
	[ -x "$program" ] || { echo "Deno is not there: run hack/deno.sh install" >&2; exit 1; }
	echo "$program"
	;;
version)
	echo "$version"
	;;
*)
	sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
	exit 1
	;;
esac
