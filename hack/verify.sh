#!/usr/bin/env bash
# verify.sh: fails when a generated file differs from what its source generates, when the types of the console's page do not
# check, when a go.mod is not tidy, when Go code is not formatted, or when a file is larger than 1 MiB. It changes nothing in the work tree: it generates into a temporary folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tmp=$(mktemp -d "${TMPDIR:-/tmp}/skein-verify.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
bad=0

complain() {
	echo "verify: $1" >&2
	bad=1
}

hack/generate.sh "$tmp"
while IFS= read -r -d '' file; do
	file=${file#"$tmp"/}
	if [[ $file = */console/page/dist/* ]]; then # a diff of these says nothing
		cmp -s "$file" "$tmp/$file" || complain "$file is not what its source says: run 'go generate ./cmd/kubectl-skein/internal/console/page' and commit"
	elif ! diff -u "$file" "$tmp/$file"; then
		complain "$file is not what its source says: run 'make generate manifests docs' and commit"
	fi
done < <(find "$tmp" -type f -print0)

if ! hack/step.sh "Check the types of the console's page" hack/tsc.sh console; then
	complain "the types of the console's page do not check: mend what the lines above name"
fi

# A schema whose kind was removed would otherwise stay.
for crd in config/crd/bases/*.yaml; do
	[ -e "$tmp/$crd" ] || complain "$crd comes from no kind any more: delete it"
	grep -q "bases/${crd##*/}" config/crd/kustomization.yaml || complain "$crd is missing in config/crd/kustomization.yaml"
done

for dir in . hack/tools hack/tools/golangci-lint hack/tools/krew hack/tools/versitygw hack/monitoring; do
	if ! hack/step.sh "Check $dir/go.mod" go -C "$dir" mod tidy -diff; then
		complain "$dir/go.mod is not tidy: run 'go -C $dir mod tidy' and commit"
	fi
done

unformatted=$(git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0 sh -c 'for f; do [ -e "$f" ] && echo "$f"; done' sh | xargs gofmt -l)
if [ -n "$unformatted" ]; then
	echo "$unformatted" >&2
	complain "the files above are not formatted: run 'make fmt' and commit"
fi

# A program that was built in the wrong place would stay in the history for ever.
while IFS= read -r -d '' file; do
	[ -f "$file" ] || continue
	size=$(wc -c <"$file")
	if [ "$size" -gt 1048576 ]; then
		complain "$file has $size bytes, and 1,048,576 are allowed: add it to .gitignore, or let a script make it"
	fi
done < <(git ls-files -z --cached --others --exclude-standard)

[ "$bad" -eq 0 ] && echo "verify: everything generated is up to date"
exit "$bad"
