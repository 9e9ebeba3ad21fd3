#!/usr/bin/env bash
# run.sh [--down]: builds the demo program and becomes it, so that an interrupt reaches it directly.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mkdir -p build
go build -o build/demo ./hack/demo
exec build/demo "$@"
