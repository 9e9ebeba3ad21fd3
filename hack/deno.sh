#!/usr/bin/env bash
# deno.sh COMMAND: Deno, the program of the sandboxes' v8 engine, in one pinned version.
#   install   fetch it from the npm registry into the cache, unless it is there, and check its sum
#   bin       print the path of the program
#   version   print the version
#   files DIR put what an image needs beside a static program into DIR: Deno, Debian's C library that it is linked
#             with (packages libc6 and libgcc-s1 of this machine's release), and their licences
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)

version=2.9.6
# The sums of the packages, as in the registry's "dist.integrity".
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
	npm pack --loglevel error "$package@$version" >/dev/null
	local got
	got=$(openssl dgst -sha512 -binary ./*.tgz | base64 -w0)
	if [ "$got" != "$sum" ]; then
		echo "deno.sh: $package@$version has the sum $got, not $sum: it is not used" >&2
		exit 1
	fi
	tar xzf ./*.tgz package/deno
	chmod 0755 package/deno
}

# libraries unpacks the packages of the C library. Their files are in lib or, where /lib is a link, in usr/lib.
libraries() {
	cd "$1"
	apt-get download libc6 libgcc-s1 || { flock "$here/need.sh" apt-get update && apt-get download libc6 libgcc-s1; }
	for package in ./*.deb; do dpkg-deb -x "$package" .; done
	[ -d lib/x86_64-linux-gnu ] || ln -s usr/lib lib
	cp -n usr/lib/x86_64-linux-gnu/lib*.so* lib/x86_64-linux-gnu/ 2>/dev/null || true
}

licence() {
	cat <<-END
		Deno $version, https://github.com/denoland/deno, from the npm package $package.

		MIT License

		Copyright 2018-2026 the Deno authors

		Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
		documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
		rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to
		permit persons to whom the Software is furnished to do so, subject to the following conditions:

		The above copyright notice and this permission notice shall be included in all copies or substantial portions of
		the Software.

		THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO
		THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
		AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF
		CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER
		DEALINGS IN THE SOFTWARE.
	END
}

case "${1:-}" in
install)
	[ -x "$program" ] && exit 0
	"$here/need.sh" npm=npm openssl=openssl
	mkdir -p "$(dirname "$program")"
	# Unpacked under another name and renamed, so that an interrupt leaves nothing incomplete.
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
files)
	dir=${2:?deno.sh files: name the folder}
	[ -x "$program" ] || { echo "Deno is not there: run hack/deno.sh install" >&2; exit 1; }
	if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
		echo "deno.sh: the C library of the image comes from Debian packages: build it on Debian" >&2
		exit 1
	fi
	tmp=$(mktemp -d "${TMPDIR:-/tmp}/skein-deno.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	"$here/step.sh" "Fetch libc6 and libgcc-s1" bash -c "$(declare -p here); $(declare -f libraries); set -euo pipefail; libraries $(printf %q "$tmp")"
	rm -rf "$dir"
	mkdir -p "$dir/lib64" "$dir/lib/x86_64-linux-gnu" "$dir/usr/share/doc/deno"
	install -m 0555 "$program" "$dir/deno"
	install -m 0555 "$tmp/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" "$dir/lib64/"
	for lib in libc.so.6 libm.so.6 libdl.so.2 librt.so.1 libpthread.so.0 libgcc_s.so.1; do
		install -m 0444 "$tmp/lib/x86_64-linux-gnu/$lib" "$dir/lib/x86_64-linux-gnu/"
	done
	for package in libc6 libgcc-s1; do
		# One licence file is a link to a file of another package of the same source.
		mkdir -p "$dir/usr/share/doc/$package"
		cp -L "$tmp/usr/share/doc/$package/copyright" "$dir/usr/share/doc/$package/" 2>/dev/null ||
			cp "/usr/share/doc/$package/copyright" "$dir/usr/share/doc/$package/"
	done
	licence >"$dir/usr/share/doc/deno/copyright"
	;;
*)
	sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
	exit 1
	;;
esac
