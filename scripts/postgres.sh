# shellcheck shell=bash
# What scripts/test and scripts/conformance share; they source it. It finds a PostgreSQL server, in this order: the
# DSN in HOST_TEST_POSTGRES; a server on 127.0.0.1:5432 that lets us in; a private throw-away server from installed
# binaries; the same after installing them (as root on Debian). HOST_TEST_PRIVATE=1 skips the server on port 5432.
#
# need_postgres sets HOST_TEST_POSTGRES, facts ("<version> <max_connections>") and origin. The folder $workdir, which
# make_workdir makes, and the private server end with the script.
workdir=''
pgdata=''
pgbin=''

say() { printf '%s: %s\n' "$0" "$*" >&2; }
die() { say "$*"; exit 2; }
cores() { nproc 2>/dev/null || getconf _NPROCESSORS_ONLN; }
can_apt() { [ "$(id -u)" = 0 ] && [ -e /etc/debian_version ] && command -v apt-get >/dev/null; }

apt_install() {
  say "installing $* with apt-get"
  {
    DEBIAN_FRONTEND=noninteractive apt-get update -qq &&
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
  } >"$workdir/apt.log" 2>&1 || { tail -n 5 "$workdir/apt.log" >&2; return 1; }
}

# as_owner runs a command as the account that owns the private cluster: initdb refuses root.
as_owner() {
  if [ "$(id -u)" != 0 ]; then
    "$@"
  elif command -v setpriv >/dev/null; then
    setpriv --reuid="$owner" --regid="$(id -g "$owner")" --clear-groups -- "$@"
  else
    su -s /bin/sh "$owner" -c "$(printf '%q ' "$@")"
  fi
}

# shellcheck disable=SC2317 # called by the trap
cleanup() {
  local code=$?
  trap - EXIT INT TERM HUP
  if [ -n "$pgdata" ] && [ -e "$pgdata/postmaster.pid" ]; then
    as_owner "$pgbin/pg_ctl" -D "$pgdata" -m immediate -w stop >/dev/null 2>&1 || say "the private server in $pgdata did not stop"
  fi
  [ -z "$workdir" ] || rm -rf "$workdir"
  exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# probe prints "<version> <max_connections>" of a server that can be used for tests.
probe() { "$workdir/pgprobe" "$1"; }

find_pgbin() {
  local dir
  for dir in "$(pg_config --bindir 2>/dev/null || true)" \
    $(ls -d /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql*/bin /usr/local/opt/postgresql*/bin /usr/local/pgsql/bin 2>/dev/null | sort -rV) \
    "$(dirname "$(command -v initdb 2>/dev/null || echo /nonexistent/initdb)")"; do
    if [ -x "$dir/initdb" ] && [ -x "$dir/pg_ctl" ] && [ -x "$dir/postgres" ]; then
      pgbin=$dir
      return 0
    fi
  done
  return 1
}

# start_private starts a cluster of our own on a free port; it is removed when the script ends.
start_private() {
  local port try
  owner=$(id -un)
  if [ "$(id -u)" = 0 ]; then
    owner=postgres
    id postgres >/dev/null 2>&1 || owner=nobody
  fi
  mkdir "$workdir/pg"
  [ "$(id -u)" != 0 ] || { chmod 711 "$workdir" && chown "$owner" "$workdir/pg"; }
  pgdata=$workdir/pg/data
  (cd "$workdir/pg" && as_owner "$pgbin/initdb" -D "$pgdata" -U postgres -A trust -E UTF8 --no-locale --no-sync) >"$workdir/initdb.log" 2>&1 ||
    die "initdb of $pgbin failed: $(tail -n 1 "$workdir/initdb.log")"
  for try in 1 2 3 4 5; do
    port=$((20000 + RANDOM % 30000))
    if (cd "$workdir/pg" && as_owner "$pgbin/pg_ctl" -D "$pgdata" -l "$workdir/pg/log" -w -t 60 \
      -o "-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c max_connections=300 -c fsync=off -c synchronous_commit=off -c full_page_writes=off" start) >/dev/null 2>&1; then
      HOST_TEST_POSTGRES="postgres://postgres@127.0.0.1:$port/postgres?sslmode=disable"
      return
    fi
    say "the private server did not start on port $port (try $try): $(tail -n 1 "$workdir/pg/log" 2>/dev/null)"
  done
  die "the private PostgreSQL server of $pgbin did not start."
}

need_postgres() {
  local dsn
  go build -o "$workdir/pgprobe" scripts/pgprobe.go
  if [ -n "${HOST_TEST_POSTGRES:-}" ]; then
    facts=$(probe "$HOST_TEST_POSTGRES") || die "HOST_TEST_POSTGRES is set but that server cannot be used."
    origin='given'
    return
  fi
  if [ "${HOST_TEST_PRIVATE:-}" != 1 ]; then
    for dsn in postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable postgres://postgres:postgres@127.0.0.1:5432/postgres?sslmode=disable; do
      if facts=$(probe "$dsn" 2>/dev/null); then
        HOST_TEST_POSTGRES=$dsn
        origin='127.0.0.1:5432'
        return
      fi
    done
  fi
  if ! find_pgbin; then
    if ! can_apt || ! apt_install postgresql || ! find_pgbin; then
      die "PostgreSQL is missing: install postgresql (Debian), postgresql-server (Fedora) or postgresql@17 (Homebrew), or set HOST_TEST_POSTGRES to the DSN of a server, and run this again."
    fi
  fi
  start_private
  facts=$(probe "$HOST_TEST_POSTGRES") || die "the private PostgreSQL server cannot be used."
  origin='private'
}

make_workdir() { workdir=$(mktemp -d "${TMPDIR:-/tmp}/objecthost.XXXXXX"); }

need_go() {
  command -v go >/dev/null || die "Go is missing: install Go 1.26 or newer (https://go.dev/dl) and run this again."
}
