#!/usr/bin/env bash
# postgres.sh COMMAND: PostgreSQL for tests and for trying things out. The tests start their own servers.
#   install   make sure that the server's programs are installed (Debian's package postgresql, as root)
#   bin       print the folder of initdb and postgres
#   run -- CMD...   run CMD with SKEIN_DATABASE_URL set to an empty database, on a server that ends with CMD
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)

bin() {
	local dir
	for dir in "${SKEIN_POSTGRES_BIN:-}" $(ls -d "${PREREQUISITES_ROOT:-}"/usr/lib/postgresql/*/bin 2>/dev/null | sort -rV) ${PATH//:/ }; do
		if [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ]; then
			echo "$dir"
			return
		fi
	done
	return 1
}

case "${1:-}" in
bin)
	bin || { echo "PostgreSQL's server is not installed: run hack/postgres.sh install, or name its folder in SKEIN_POSTGRES_BIN" >&2; exit 1; }
	;;
install)
	bin >/dev/null && exit 0
	# Keep the package from starting a server, which nothing here needs.
	if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null && ! [ -e /etc/postgresql-common/createcluster.conf ]; then
		mkdir -p /etc/postgresql-common
		echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
	fi
	"$here/need.sh" initdb=postgresql || exit 1
	bin >/dev/null || { echo "PostgreSQL was installed, but initdb and postgres are not found: name their folder in SKEIN_POSTGRES_BIN" >&2; exit 1; }
	;;
run)
	shift
	[ "${1:-}" = -- ] && shift
	[ $# -gt 0 ] || { echo "say what to run: hack/postgres.sh run -- CMD..." >&2; exit 1; }
	cd "$here/.."
	mkdir -p build
	"$here/step.sh" "Build build/pgrun" go build -o "build/.pgrun-$$" ./hack/pgrun
	mv -f "build/.pgrun-$$" build/pgrun
	exec build/pgrun "$@"
	;;
*)
	sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
	exit 1
	;;
esac
