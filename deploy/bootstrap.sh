# shellcheck shell=bash
# Sourced by ./run and ./test in the repository's folder. `bootstrap run|client|spark|dev` creates .venv with the pinned packages
# of deploy/requirements/<name>.txt, unless they are installed. It reports on stderr what it installs.

say() { printf '%s\n' "$*" >&2; }
die() { say "holdfast: $*"; exit 1; }

bootstrap() {
  local pins="deploy/requirements/$1.txt" sum
  sum="$1 $(cksum <"$pins")"
  is_installed "$sum" && return 0
  # Of two concurrent runs, the second waits for the first. Without flock, it repeats the work.
  exec 9<.
  if command -v flock >/dev/null && flock 9 && is_installed "$sum"; then
    exec 9<&-
    return 0
  fi
  find_uv
  if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    say "Creating .venv …"
    rm -rf .venv
    "$UV" venv --quiet --python "${PYTHON:-3.13}" .venv || die "can't create a virtual environment in $PWD/.venv"
  fi
  say "Installing the pinned packages …"
  local others=""
  [[ ! -r .venv/.holdfast ]] || others=$(grep -v "^$1 " .venv/.holdfast || true)
  rm -f .venv/.holdfast
  "$UV" pip install --quiet --python .venv/bin/python --require-hashes -r "$pins" || die "can't install the packages"
  # dev.txt includes the packages of the others in the same versions: after ./test, ./run has nothing to install.
  [[ $1 != dev ]] || others=$(for name in run client spark; do printf '%s %s\n' "$name" "$(cksum <"deploy/requirements/$name.txt")"; done)
  printf '%s\n' "$sum" "$others" >.venv/.holdfast
  exec 9<&-
}

is_installed() {
  local noted=""
  [[ -r .venv/.holdfast ]] && noted=$(<.venv/.holdfast)
  [[ -x .venv/bin/python && $'\n'$noted$'\n' == *$'\n'"$1"$'\n'* ]]
}

# Sets UV, and PYTHON if one was found.
find_uv() {
  PYTHON=$(find_python || true)
  local place
  for place in "$(command -v uv || true)" .tools/bin/uv .tools/target/bin/uv; do
    if [[ -n $place ]] && "$place" --version >/dev/null 2>&1; then
      UV=$place
      return 0
    fi
  done
  [[ -n $PYTHON ]] || die "Python 3.11 or newer is needed, but was not found on PATH. Install it (apt-get install python3; brew install python), or install uv."
  say "Installing uv into .tools …"
  install_uv
}

find_python() {
  local name path
  for name in python3.14 python3.13 python3.12 python3.11 python3 python; do
    path=$(command -v "$name") || continue
    if "$path" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      printf '%s\n' "$path"
      return 0
    fi
  done
  return 1
}

install_uv() {
  local pins="deploy/requirements/tools.txt"
  rm -rf .tools
  if ! "$PYTHON" -m venv .tools >/dev/null 2>&1; then
    # On Debian and Ubuntu, ensurepip is a separate package.
    rm -rf .tools
    if "$PYTHON" -m pip --version >/dev/null 2>&1; then
      UV=.tools/target/bin/uv
      "$PYTHON" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --require-hashes --target .tools/target -r "$pins" || die "can't install uv"
      return 0
    fi
    [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null || die "this Python can't create a virtual environment. Install python3-venv (apt-get install python3-venv), or uv, and run this again."
    say "Installing python3-venv …"
    apt_install python3-venv || die "apt-get install python3-venv failed"
    rm -rf .tools
    "$PYTHON" -m venv .tools || die "this Python can't create a virtual environment, although python3-venv is installed"
  fi
  UV=.tools/bin/uv
  .tools/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r "$pins" || die "can't install uv"
}

# Installs the programs that ./test needs beside Python packages, if it is allowed to. Tests report what is missing.
bootstrap_programs() {
  local wanted=()
  command -v java >/dev/null || wanted+=(openjdk-17-jre-headless)
  [[ -n ${POSTGRES_JDBC_JAR:-} || -r /usr/share/java/postgresql.jar ]] || wanted+=(libpostgresql-jdbc-java)
  # Ubuntu's package only installs a snap. Chrome, or playwright's browser as CHROMIUM_PATH, works too.
  [[ -n ${CHROMIUM_PATH:-} ]] || command -v chromium chromium-browser google-chrome >/dev/null || [[ -d "/Applications/Google Chrome.app" ]] || wanted+=(chromium)
  # Tests run these with their own configurations and ports.
  PATH="$PATH:/usr/sbin" command -v pgbouncer >/dev/null || wanted+=(pgbouncer)
  PATH="$PATH:/usr/sbin" command -v nginx >/dev/null || wanted+=(nginx)
  command -v promtool >/dev/null || wanted+=(prometheus)
  [[ ${#wanted[@]} -gt 0 ]] || return 0
  if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    say "Not installed: ${wanted[*]}. On Debian and Ubuntu: sudo apt-get install --no-install-recommends ${wanted[*]}"
    return 0
  fi
  say "Installing ${wanted[*]} …"
  # Debian starts a server after its installation, unless this file forbids it.
  local policy=/usr/sbin/policy-rc.d ours=""
  [[ -e $policy ]] || ours=$policy
  [[ -z $ours ]] || { printf '#!/bin/sh\nexit 101\n' >"$ours" && chmod +x "$ours"; }
  apt_install "${wanted[@]}" || say "holdfast: apt-get install ${wanted[*]} failed"
  [[ -z $ours ]] || rm -f "$ours"
}

apt_install() {
  { apt-get install -y --no-install-recommends "$@" || { apt-get update && apt-get install -y --no-install-recommends "$@"; }; } >/dev/null 2>&1
}
