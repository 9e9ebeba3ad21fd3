#!/usr/bin/env bash
# chromium.sh COMMAND: the browser in which tests open the console's page.
#   install   make sure that there is one (Debian's package chromium, as root)
#   bin       print the path of the program
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)

bin() {
	local name
	if [ -n "${SKEIN_CHROMIUM:-}" ]; then
		command -v "$SKEIN_CHROMIUM" || { echo "SKEIN_CHROMIUM=$SKEIN_CHROMIUM is no program" >&2; exit 1; }
		return
	fi
	for name in chromium chromium-browser google-chrome; do
		if command -v "$name"; then
			return
		fi
	done
	return 1
}

case "${1:-}" in
bin)
	bin || { echo "Chromium is not installed: run hack/chromium.sh install, or name the program in SKEIN_CHROMIUM" >&2; exit 1; }
	;;
install)
	# Fonts come with it: fontconfig needs some.
	bin >/dev/null || "$here/need.sh" chromium=chromium
	;;
*)
	sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
	exit 1
	;;
esac
