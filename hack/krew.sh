#!/usr/bin/env bash
# krew.sh: builds kubectl skein for PLATFORMS into archives in build/krew, and prints the manifest for krew of VERSION, whose
# archives are at BASE, into build/krew/skein.yaml. The same source and version make the same archives.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cd "$root"
if [ -z "${VERSION:-}" ] || [ -z "${BASE:-}" ]; then
	echo 'krew.sh: say which version, and where its archives will be: make krew VERSION=v0.1.0 BASE=https://…' >&2
	exit 1
fi
# Made beside its place and renamed, so that an interrupt leaves no part of an archive.
mkdir -p build
out=$(mktemp -d "$root/build/.krew.XXXXXX")
trap 'rm -rf "$out"' EXIT
export CGO_ENABLED=0
for platform in ${PLATFORMS:-linux/amd64}; do
	os=${platform%/*} arch=${platform#*/}
	bin=kubectl-skein
	[ "$os" != windows ] || bin=kubectl-skein.exe
	tmp=$out/.$os-$arch
	mkdir "$tmp"
	GOOS=$os GOARCH=$arch hack/step.sh "Build the plugin for $platform" go build -p "${JOBS:-2}" -trimpath -ldflags '-s -w' -o "$tmp/$bin" ./cmd/kubectl-skein
	install -m 0644 LICENSE "$tmp/LICENSE"
	tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -C "$tmp" -cf - "$bin" LICENSE | gzip -n >"$out/kubectl-skein_${os}_$arch.tar.gz"
	rm -rf "$tmp"
done
GOOS='' GOARCH='' go run ./hack/krew -version "$VERSION" -base "$BASE" "$out"/*.tar.gz >"$out/skein.yaml"
chmod 0755 "$out"
rm -rf build/krew
mv "$out" build/krew
echo build/krew/skein.yaml
