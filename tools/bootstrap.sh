#!/usr/bin/env bash
# Makes everything that Troupe is built from available on a Debian 12 machine: Debian packages, CAF built from
# Debian's source package, LibTorch from its PyPI wheel. Idempotent; quick when there is nothing to do. Whatever it
# makes lies under $TROUPE_CACHE (default: the user's cache folder), keyed by version, and is shared by all clones.
#
#   tools/bootstrap.sh            install what is missing, print the two roots
#   TROUPE_CUDA=1                 the LibTorch wheel with all its CUDA packages (a GPU host)
#   CAF_ROOT, LIBTORCH_ROOT       use these instead of our own (for machines without Debian)
#   TROUPE_NO_PACKAGES=1          do not look at system packages at all
set -euo pipefail

readonly caf_version=0.18.7
readonly caf_sha256=d5c3abe8fd67a729aab1baeece10367637d903ba335f4c79378bcadfbcd34552
readonly torch_version=2.15.0
readonly nccl_version=2.30.7
readonly cache=${TROUPE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/troupe}

readonly debian_packages=(
  g++ cmake ninja-build ccache pkg-config dpkg-dev ca-certificates
  python3 python3-venv
  libcereal-dev nlohmann-json3-dev libboost-filesystem-dev libxxhash-dev libssl-dev libgloo-dev
  libexpected-dev libgtest-dev libgmock-dev dataset-fashion-mnist
)
# Only what `./dev test` and `./dev check` need on top.
readonly debian_test_packages=(clang-format python3-torch python3-numpy)

work=
say() { printf 'bootstrap: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null | grep -q 'ok installed' || printf '%s ' "$package"
  done
}

install_packages() {
  [ "${TROUPE_NO_PACKAGES:-}" = 1 ] && return
  command -v apt-get >/dev/null || fail "this is no Debian machine: give CAF_ROOT and LIBTORCH_ROOT and set TROUPE_NO_PACKAGES=1"
  local missing as_root=()
  missing=$(missing_packages "$@")
  [ -z "$missing" ] && return
  if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      as_root=(sudo)
    elif command -v sudo >/dev/null && [ -t 0 ]; then
      as_root=(sudo)
    else
      fail "packages are missing and this user may not install them; run as root: apt-get install -y --no-install-recommends $missing"
    fi
  fi
  say "installing $missing"
  "${as_root[@]}" apt-get update -qq || fail "apt-get update failed: is the network up?"
  # shellcheck disable=SC2086 # a list of names
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null ||
    fail "apt-get could not install: $missing"
}

# The mirror that this system already uses for Debian itself.
debian_mirror() {
  local found
  found=$({ cat /etc/apt/sources.list.d/*.sources | sed -n 's/^URIs: *//p'
            cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list | sed -nE 's/^deb +(\[[^]]*\] +)?([^ ]+) .*/\2/p'
          } 2>/dev/null | tr ' ' '\n' | grep -E '/debian/?$') || true
  echo "${found%%$'\n'*}"
}

# Fetches CAF's source through a private apt state, so that no file of the system changes.
fetch_caf_source() {
  local folder=$1 mirror
  mirror=$(debian_mirror)
  [ -n "$mirror" ] || fail "no Debian mirror in /etc/apt: give CAF_ROOT"
  mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial" "$folder/download"
  echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror experimental main" >"$folder/apt/sources.list"
  local options=(-qq -o "Dir::Etc::SourceList=$folder/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$folder/apt/lists" -o "Dir::Cache=$folder/apt" -o APT::Sandbox::User=)
  apt-get "${options[@]}" update || fail "the source list of $mirror (experimental) could not be read"
  (cd "$folder/download" && apt-get "${options[@]}" source --tar-only --download-only "actor-framework=$caf_version-1~exp1") ||
    fail "the source of CAF $caf_version could not be downloaded from $mirror"
  local archive
  archive=$(find "$folder/download" -name 'actor-framework_*.orig.tar.*' ! -name '*.asc' | head -n 1)
  echo "$caf_sha256  $archive" | sha256sum --check --quiet || fail "the checksum of $archive is not that of CAF $caf_version"
  mkdir -p "$folder/source"
  tar -xf "$archive" -C "$folder/source" --strip-components=1
}

build_caf() {
  local root=$cache/caf-$caf_version
  if [ ! -e "$root/.complete" ]; then
    say "building CAF $caf_version (3-4 minutes on two cores, once per user)"
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/.caf-XXXXXX")
    trap 'rm -rf "$work"' EXIT INT TERM
    fetch_caf_source "$work"
    cmake -S "$work/source" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release "-DCMAKE_INSTALL_PREFIX=$root" \
      -DCAF_ENABLE_EXAMPLES=OFF -DCAF_ENABLE_TESTING=OFF -DCAF_ENABLE_TOOLS=OFF -DCAF_ENABLE_OPENSSL_MODULE=ON \
      >"$cache/caf-build.log" 2>&1 || fail "CAF could not be configured: see $cache/caf-build.log"
    cmake --build "$work/build" >>"$cache/caf-build.log" 2>&1 || fail "CAF did not build: see $cache/caf-build.log"
    rm -rf "$root"
    cmake --install "$work/build" >>"$cache/caf-build.log" 2>&1 || fail "CAF could not be installed: see $cache/caf-build.log"
    touch "$root/.complete"
    rm -rf "$work"
    trap - EXIT
  fi
  CAF_ROOT=$root
}

install_libtorch() {
  local flavor=cpu root
  [ "${TROUPE_CUDA:-}" = 1 ] && flavor=cuda
  root=$cache/libtorch-$torch_version-$flavor
  if [ ! -e "$root/.complete" ]; then
    say "downloading LibTorch $torch_version ($flavor)"
    rm -rf "$root"
    /usr/bin/python3 -m venv "$root" || fail "python3 -m venv failed: is python3-venv installed?"
    local pip=("$root/bin/python" -m pip install -q --disable-pip-version-check --no-compile)
    if [ "$flavor" = cuda ]; then
      "${pip[@]}" "torch==$torch_version" || fail "the wheel torch==$torch_version could not be installed from PyPI"
    else
      "${pip[@]}" --no-deps "torch==$torch_version" 'nvidia-cuda-runtime==13.2.*' 'nvidia-cuda-cupti==13.2.*' ||
        fail "the wheel torch==$torch_version could not be installed from PyPI"
    fi
    touch "$root/.complete"
  fi
  LIBTORCH_ROOT=$(echo "$root"/lib/python3*/site-packages/torch)
}

packages=("${debian_packages[@]}")
[ "${1:-}" = --with-tests ] && packages+=("${debian_test_packages[@]}")
install_packages "${packages[@]}"
[ -n "${CAF_ROOT:-}" ] || build_caf
[ -n "${LIBTORCH_ROOT:-}" ] || install_libtorch
echo "CAF_ROOT=$CAF_ROOT"
echo "LIBTORCH_ROOT=$LIBTORCH_ROOT"
