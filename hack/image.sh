#!/usr/bin/env bash
# image.sh TARGET NAME ARCHIVE: builds a target of the Dockerfile with buildah and saves it as an OCI archive. The
# build pulls nothing and runs nothing. Its storage is a temporary folder.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
target=$1 name=$2 archive=$3
if [ "$(id -u)" -ne 0 ]; then
	echo "image.sh: buildah needs root here; with Docker: docker build --target $target -t $name ." >&2
	exit 1
fi
"$root/hack/need.sh" buildah=buildah
tmp=$(mktemp -d "${TMPDIR:-/tmp}/skein-image.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
printf '{"default":[{"type":"insecureAcceptAnything"}]}\n' >"$tmp/policy.json"
storage=(--root "$tmp/root" --runroot "$tmp/run" --storage-driver vfs)
export BUILDAH_ISOLATION=chroot
mkdir -p "$(dirname "$archive")"
# Written beside its place and renamed, so that an interrupt leaves no part of an archive.
new=$(dirname "$archive")/.new-$$.tar
trap 'rm -rf "$tmp" "$new"' EXIT
buildah "${storage[@]}" bud --quiet --signature-policy "$tmp/policy.json" --target "$target" -t "$name" -f "$root/Dockerfile" "$root" >/dev/null
buildah "${storage[@]}" push --quiet --signature-policy "$tmp/policy.json" "$name" "oci-archive:$new:$name"
mv -f "$new" "$archive"
echo "$name: $archive, $(($(stat -c %s "$archive") / 1048576)) MiB"
