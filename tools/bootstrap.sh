#!/usr/bin/env bash
# Provides everything that Troupe is built from on a Debian 12 or 13 machine: Debian packages, CAF built from Debian's source
# package, LibTorch from its PyPI wheel. Idempotent; quick when there is nothing to do. What it builds is stored below
# $TROUPE_CACHE (default: the user's cache folder), keyed by version, and shared by all clones. A part appears there by
# rename, complete or not at all; clones that start together take turns.
#
#   tools/bootstrap.sh                  install what is missing, print the roots as NAME=value, one a line
#   ... --with-tests                    what the tests need, too
#   ... --with-checks                   what `./dev check` needs, too
#   TROUPE_CUDA=1                       the LibTorch wheel with all its CUDA packages (a GPU host)
#   CAF_ROOT, LIBTORCH_ROOT             use these instead of our own (for machines without Debian)
#   TROUPE_NO_PACKAGES=1                do not look at system packages at all
set -euo pipefail

readonly caf_version=0.18.7
readonly caf_sha256=d5c3abe8fd67a729aab1baeece10367637d903ba335f4c79378bcadfbcd34552
readonly torch_version=2.15.0
readonly nccl_version=2.30.7 # The one that this LibTorch's CUDA part loads.
# What the headers of the CUDA runtime that LibTorch comes with include.
readonly cuda_headers=('nvidia-cuda-crt==13.2.*' 'nvidia-cuda-cccl==13.2.*')
readonly safetensors_version=0.5.3
readonly python=/usr/bin/python3 # Debian's own, whatever else is on PATH.
readonly cache=${TROUPE_CACHE:-${XDG_CACHE_HOME:-${HOME:?bootstrap: HOME is not set}/.cache}/troupe}

readonly debian_packages=(
  g++ cmake ninja-build ccache pkg-config dpkg-dev ca-certificates debian-archive-keyring
  python3 python3-venv
  libcereal-dev nlohmann-json3-dev libboost-filesystem-dev libxxhash-dev libssl-dev libgloo-dev zlib1g-dev
  libexpected-dev libgtest-dev libgmock-dev dataset-fashion-mnist libcurl4-openssl-dev
  libturbojpeg0-dev libpng-dev
  libutfcpp-dev libprotozero-dev libstb-dev libzip-dev libcli11-dev
)
# What only the tests and the checks need. Not sshd and Slurm, although some tests use them: their packages start services.
readonly debian_test_packages=(clang-format python3-torch python3-numpy chromium nftables iproute2 procps libfaketime fortunes)

work=

say() { printf 'bootstrap: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
trap '[ -z "$work" ] || rm -rf "$work"' EXIT

# Only one bootstrap per user works at a time. The lock ends with the process.
take_turn() {
  [ -n "${have_turn:-}" ] && return
  mkdir -p "$cache" || fail "the cache folder $cache cannot be made: set TROUPE_CACHE to one that can"
  exec 9>"$cache/.lock"
  if ! flock --nonblock 9; then
    say "another bootstrap is at work on $cache; waiting for it"
    flock 9
  fi
  have_turn=1
  rm -rf "$cache"/.work-* # Left by a bootstrap that was killed.
}

new_work_folder() {
  work=$(mktemp -d "$cache/.work-XXXXXX") || fail "no folder can be made in $cache"
}

# Renames the finished folder $1 to $2 and removes the work folder.
publish() {
  touch "$1/.complete"
  rm -rf "$2"
  mv "$1" "$2"
  rm -rf "$work"
  work=
}

missing_packages() {
  # dpkg-query fails for packages that it does not know; they are missing, too.
  local installed
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^installed //p') || true
  printf '%s\n' "$@" | grep -vxF "$installed" | tr '\n' ' ' || true
}

install_packages() {
  [ "${TROUPE_NO_PACKAGES:-}" = 1 ] && return
  command -v apt-get >/dev/null ||
    fail "this is not a Debian machine: install the packages of docs/decisions/dependencies.md, give CAF_ROOT and LIBTORCH_ROOT and set TROUPE_NO_PACKAGES=1"
  local missing as_root=()
  missing=$(missing_packages "$@")
  [ -z "$missing" ] && return
  if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
      as_root=(sudo)
    else
      fail "packages are missing and this user may not install them; run as root: apt-get install -y --no-install-recommends ${missing% }"
    fi
  fi
  take_turn
  missing=$(missing_packages "$@") # Another bootstrap may have installed them meanwhile.
  [ -z "$missing" ] && return
  say "installing ${missing% }"
  "${as_root[@]}" apt-get -qq -o DPkg::Lock::Timeout=600 update || fail "apt-get update failed: is the network up?"
  # shellcheck disable=SC2086 # a list of names
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 \
    install -y --no-install-recommends $missing >"$cache/packages.log" 2>&1 9>&- ||
    fail "apt-get could not install ${missing% }: see $cache/packages.log"
}

# The mirror that this system uses for Debian itself: of deb822 files and of one-line files. Cloud images name a list
# of mirrors (mirror+file:/.../debian.list), which serves as well as one.
debian_mirror() {
  local uris
  uris=$({ cat /etc/apt/sources.list.d/*.sources | sed -n 's/^URIs: *//Ip'
           cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list |
             sed -nE 's/^deb(-src)?[[:space:]]+(\[[^]]*\][[:space:]]+)?([^[:space:]]+).*/\3/p'
         } 2>/dev/null | tr ' ' '\n' | grep -E '/debian(/?|\.list)$') || true
  echo "${uris%%$'\n'*}"
}

# Unpacks CAF's source at $1/source. A private apt state, so that no file of the system changes.
fetch_caf_source() {
  local folder=$1 mirror archive
  mirror=$(debian_mirror)
  [ -n "$mirror" ] || fail "no mirror of Debian is named in /etc/apt: give CAF_ROOT, a CAF $caf_version"
  mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial" "$folder/download" "$folder/source"
  echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror experimental main" >"$folder/apt/sources.list"
  local options=(-qq -o "Dir::Etc::SourceList=$folder/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$folder/apt/lists" -o "Dir::Cache=$folder/apt" -o APT::Sandbox::User=
    # A mirror that lags behind is fine: the checksum decides.
    -o Acquire::Check-Valid-Until=false)
  apt-get "${options[@]}" update || fail "the list of Debian's experimental sources could not be fetched from $mirror"
  (cd "$folder/download" && apt-get "${options[@]}" source --tar-only --download-only "actor-framework=$caf_version-1~exp1") ||
    fail "the source of CAF $caf_version could not be fetched from $mirror"
  archive=$(find "$folder/download" -name 'actor-framework_*.orig.tar.*' ! -name '*.asc')
  echo "$caf_sha256  $archive" | sha256sum --check --quiet >/dev/null 2>&1 ||
    fail "the archive $(basename "$archive") is not CAF $caf_version: its checksum differs"
  tar -xf "$archive" -C "$folder/source" --strip-components=1
}

# A CAF of the right version that CMake's find_package would find by itself.
system_caf() {
  local file
  for file in /usr/local/lib/cmake/CAF/CAFConfigVersion.cmake /usr/lib/cmake/CAF/CAFConfigVersion.cmake \
    /usr/lib/*-linux-gnu/cmake/CAF/CAFConfigVersion.cmake; do
    if [ -e "$file" ] && grep -qE 'PACKAGE_VERSION "0\.18\.([7-9]|[1-9][0-9])' "$file"; then
      echo "${file%%/lib/*}"
      return
    fi
  done
}

# Builds CAF at $1, with further CMake options, unless it is there.
build_caf() {
  local root=$1 log=$cache/${1##*/}.log
  shift
  [ -e "$root/.complete" ] && return
  take_turn
  [ -e "$root/.complete" ] && return
  say "building ${root##*/} (1-2 minutes on two cores, once per user)"
  new_work_folder
  fetch_caf_source "$work"
  # From GCC 13 on (Debian 13), the standard headers no longer bring the integer types that CAF forgets to include.
  # Sources are compiled five at a time, in a quarter of the time; batches of other sizes define a name twice.
  # shellcheck disable=SC2016 # $ORIGIN is for the loader
  cmake -S "$work/source" -B "$work/build" -G Ninja "-DCMAKE_INSTALL_PREFIX=$root" '-DCMAKE_INSTALL_RPATH=$ORIGIN' \
    -DCAF_ENABLE_EXAMPLES=OFF -DCAF_ENABLE_TESTING=OFF -DCAF_ENABLE_TOOLS=OFF -DCAF_ENABLE_OPENSSL_MODULE=OFF \
    '-DCMAKE_CXX_FLAGS=-include cstdint' -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=5 "$@" \
    >"$log" 2>&1 || fail "CAF could not be configured: see $log"
  cmake --build "$work/build" >>"$log" 2>&1 || fail "CAF did not build: see $log"
  cmake --install "$work/build" --prefix "$work/caf" >>"$log" 2>&1 || fail "CAF could not be installed: see $log"
  publish "$work/caf" "$root"
}

provide_caf() {
  [ -n "${CAF_ROOT:-}" ] && return
  CAF_ROOT=$(system_caf)
  [ -n "$CAF_ROOT" ] && return
  CAF_ROOT=$cache/caf-$caf_version
  build_caf "$CAF_ROOT" -DCMAKE_BUILD_TYPE=Release
}

# ThreadSanitizer sees a race in every message unless CAF is compiled for it, too.
provide_tsan_caf() {
  [ -n "${CAF_TSAN_ROOT:-}" ] && return
  CAF_TSAN_ROOT=$cache/caf-$caf_version-tsan
  build_caf "$CAF_TSAN_ROOT" -DCMAKE_BUILD_TYPE=RelWithDebInfo '-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1' \
    -DCAF_SANITIZERS=thread
}

# Makes a virtual environment at $cache/$1 with the packages that follow; Debian's Python and pip, no user site.
make_environment() {
  local root=$cache/$1
  shift
  new_work_folder
  "$python" -m venv "${venv_options[@]}" "$work/venv" || fail "$python -m venv failed: is python3-venv installed?"
  PYTHONNOUSERSITE=1 "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir \
    --no-compile "$@" || fail "PyPI did not deliver $*: is the network up?"
  # Its programs contain the path of their interpreter, which is about to move.
  grep -rlI "$work/venv" "$work/venv/bin" | xargs -r sed -i "s|$work/venv|$root|g"
  publish "$work/venv" "$root"
}

provide_libtorch() {
  [ -n "${LIBTORCH_ROOT:-}" ] && return
  local flavor=cpu wanted=(--no-deps "torch==$torch_version" 'nvidia-cuda-runtime==13.2.*' 'nvidia-cuda-cupti==13.2.*')
  [ "${TROUPE_CUDA:-}" = 1 ] && flavor=cuda wanted=("torch==$torch_version" "${cuda_headers[@]}")
  local root=$cache/libtorch-$torch_version-$flavor
  if [ ! -e "$root/.complete" ]; then
    take_turn
  fi
  if [ ! -e "$root/.complete" ]; then
    say "fetching LibTorch $torch_version for $flavor (once per user)"
    local venv_options=()
    make_environment "${root##*/}" "${wanted[@]}"
  fi
  LIBTORCH_ROOT=$(echo "$root"/lib/python3*/site-packages/torch)
}

# The headers of NCCL, and those that the CUDA runtime's include: troupe_nccl is compiled on hosts
# without a GPU, too. A GPU host has them beside the wheel, and another LibTorch loads another NCCL.
provide_nccl_headers() {
  local root=$cache/nccl-headers-$nccl_version-13.2 libtorch=$cache/libtorch-$torch_version-cpu wheel
  [[ $LIBTORCH_ROOT == "$libtorch"/* ]] || return 0
  [ -e "$root/.complete" ] && return
  take_turn
  [ -e "$root/.complete" ] && return
  say "fetching the headers of NCCL $nccl_version (once per user)"
  new_work_folder
  "$libtorch/bin/python" -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps \
    --dest "$work/wheels" "nvidia-nccl-cu13==$nccl_version" "${cuda_headers[@]}" ||
    fail "PyPI did not deliver nvidia-nccl-cu13==$nccl_version ${cuda_headers[*]}: is the network up?"
  for wheel in "$work"/wheels/*.whl; do
    "$python" -m zipfile -e "$wheel" "$work/unpacked" || fail "$(basename "$wheel") could not be unpacked"
  done
  mkdir "$work/headers"
  mv "$work/unpacked/nvidia/nccl/include" "$work/headers/"
  mv "$work/unpacked/nvidia/cu13/include"/{crt,nv} "$work/headers/include/"
  publish "$work/headers" "$root"
}

# A Python that reads what we write: Debian's torch and numpy, and safetensors.
provide_test_python() {
  [ -n "${TROUPE_TEST_PYTHON:-}" ] && return
  local root=$cache/test-python-$safetensors_version
  TROUPE_TEST_PYTHON=$root/bin/python
  [ -e "$root/.complete" ] && return
  take_turn
  [ -e "$root/.complete" ] && return
  local venv_options=(--system-site-packages)
  make_environment "${root##*/}" --no-deps "safetensors==$safetensors_version"
}

# The real trackers for the tests of the sinks. Without them only those tests are skipped.
provide_peers_python() {
  [ -n "${TROUPE_PEERS_PYTHON:-}" ] && return
  local requirements=tests/peers/requirements.txt root
  requirements=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/$requirements
  root=$cache/peers-python-$(sha256sum "$requirements" | cut -c 1-12)
  if [ ! -e "$root/.complete" ]; then
    take_turn
  fi
  if [ ! -e "$root/.complete" ]; then
    say "fetching the trackers that the tests talk to (1 GB, 1-2 minutes, once per user)"
    local venv_options=()
    # In its own shell, so that a failure does not end the bootstrap.
    (
      trap '[ -z "$work" ] || rm -rf "$work"' EXIT
      make_environment "${root##*/}" --requirement "$requirements"
    ) || { say "the tests that need a tracker will say SKIPPED"; return; }
  fi
  TROUPE_PEERS_PYTHON=$root/bin/python
}

packages=("${debian_packages[@]}")
case "${1:-}" in
  "") ;;
  --with-tests | --with-checks) packages+=("${debian_test_packages[@]}") ;;
  *) fail "unknown argument $1: there are --with-tests and --with-checks" ;;
esac
install_packages "${packages[@]}"
provide_caf
provide_libtorch
provide_nccl_headers
echo "CAF_ROOT=$CAF_ROOT"
echo "LIBTORCH_ROOT=$LIBTORCH_ROOT"
if [ -n "${1:-}" ]; then
  provide_test_python
  echo "TROUPE_TEST_PYTHON=$TROUPE_TEST_PYTHON"
  provide_peers_python
  echo "TROUPE_PEERS_PYTHON=${TROUPE_PEERS_PYTHON:-}"
fi
if [ "${1:-}" = --with-checks ]; then
  provide_tsan_caf
  echo "CAF_TSAN_ROOT=$CAF_TSAN_ROOT"
fi
