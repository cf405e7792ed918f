#!/usr/bin/env bash
# Prepares this machine: Debian packages, then llama.cpp, built once and staged in a prefix that all
# presets share. A second run finds everything in place and returns at once.
#
#   tools/setup.sh                       install, fetch, build
#   tools/setup.sh --tests               the same, and what only tests need: node, npm, curl
#   tools/setup.sh --peers               the same, and llama-server for side-by-side runs
#   tools/setup.sh --cuda                the CUDA variant, in a prefix of its own
#   tools/setup.sh --print-llama-prefix  print where the prefix is or will be; nothing else happens
#
# Environment:
#   LLAMA_CPP_SOURCE_DIR  a llama.cpp v0.4.0 source tree to build instead of the fetched one
#   SKIPPY_DEPS_DIR       where sources, builds and prefixes are kept (default ~/.cache/skippy)
#   SKIPPY_CUDA=1         same as --cuda
#   SKIPPY_JOBS           compile jobs (default: one per core)
set -euo pipefail

readonly llama_version=0.4.0
readonly npm_package=node-llama-cpp@3.21.1
# SHA-512 of the package archive: a changed archive is refused, whoever serves it.
readonly npm_package_sha512=13737412fd956b4c33c9dbd7605c0cf47bf2a34ecfa168edf13ffd18c738dc2bedf18915fcd53fb5852010c0b582b4cfbf6a3d3d18d08b41b759be4ffdac2232
readonly llama_targets=(llama llama-common cpp-httplib test-llama-archs)
readonly vocabularies=(gpt-2 llama-bpe llama-spm qwen2)

tools_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly tools_dir
readonly deps_dir=${SKIPPY_DEPS_DIR:-${XDG_CACHE_HOME:-${HOME:-~}/.cache}/skippy}

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

cmake_options() {
  printf '%s\n' -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
    -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DLLAMA_BUILD_TESTS=ON -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF \
    -DLLAMA_USE_PREBUILT_UI=OFF -DGGML_RPC=ON -DLLAMA_TOOLS_INSTALL=OFF -DLLAMA_TESTS_INSTALL=OFF
  if [[ $cuda == 1 ]]; then
    printf '%s\n' -DGGML_CUDA=ON
  fi
}

# Instruction sets of this CPU: the build is for the host, so another host must not take it over.
cpu_features() {
  grep -m1 -E '^(flags|Features)' /proc/cpuinfo | tr ' ' '\n' |
    grep -E '^(sse|ssse|avx|fma|f16c|bmi|amx|asimd|sve|sme|i8mm|bf16|fphp|vx)' | sort -u | tr '\n' ' '
}

# Names everything that changes the built bytes; a prefix is found again by its hash.
build_description() {
  printf 'llama.cpp %s\n' "$llama_version"
  cmake_options
  printf '%s %s\n' "$(uname -m)" "$(cpu_features)"
  printf 'compiler %s\n' "$(c++ -dumpfullversion -dumpversion 2>/dev/null || echo 'not yet installed')"
  printf 'source %s\n' "${LLAMA_CPP_SOURCE_DIR:-packaged}"
}

variant_dir() {
  local key suffix=''
  key=$(build_description | sha256sum | cut -c1-16)
  if [[ $cuda == 1 ]]; then
    suffix=-cuda
  fi
  printf '%s/llama.cpp-%s-%s%s\n' "$deps_dir" "$llama_version" "$key" "$suffix"
}

is_complete() { [[ -f $1/.complete ]]; }

# --- Debian packages ------------------------------------------------------------------------------

needed() {
  case $1 in
    unless-libblake3) ! [[ -f /usr/include/blake3.h || -f /usr/local/include/blake3.h ]] ;;
    unless-llama-source)
      ! command -v npm >/dev/null && [[ -z ${LLAMA_CPP_SOURCE_DIR:-} ]] &&
        ! [[ -d $deps_dir/llama.cpp-$llama_version ]] ;;
    for-tests:*) [[ $tests == 1 ]] && ! command -v "${1#for-tests:}" >/dev/null ;;
    *) true ;;
  esac
}

missing_packages() {
  local package condition wanted=() installed
  while read -r package condition; do
    if [[ -n $package && $package != '#'* ]] && needed "$condition"; then
      wanted+=("$package")
    fi
  done <"$tools_dir/debian-packages.txt"
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${wanted[@]}" 2>/dev/null |
    sed -n 's/ installed$//p' || true)
  comm -23 <(printf '%s\n' "${wanted[@]}" | sort -u) <(sort -u <<<"$installed")
}

install_packages() {
  local missing as_root=()
  if ! command -v dpkg-query >/dev/null; then
    say "not a Debian system: the packages of tools/debian-packages.txt are expected to be there"
    return
  fi
  mapfile -t missing < <(missing_packages)
  if [[ ${#missing[@]} == 0 ]]; then
    return
  fi
  if [[ $(id -u) != 0 ]]; then
    if ! sudo -n true 2>/dev/null; then
      say "packages are missing and this is not root. Run, then try again:"
      printf '  sudo apt-get update && sudo apt-get install --no-install-recommends %s\n' "${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo -n)
  fi
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq </dev/null
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "${missing[@]}" </dev/null
}

# --- llama.cpp: source ----------------------------------------------------------------------------

check_source_version() {
  local part value version=''
  for part in MAJOR MINOR PATCH; do
    value=$(sed -n "s/^set(LLAMA_VERSION_$part \([0-9]*\)).*/\1/p" "$1/CMakeLists.txt")
    version+=${version:+.}$value
  done
  [[ $version == "$llama_version" ]] || die "$1 is llama.cpp '$version', needed is $llama_version"
}

# Prints the source folder; fetches it when no folder was given. Call it with the lock held.
llama_source() {
  local fetched=$deps_dir/llama.cpp-$llama_version
  if [[ -n ${LLAMA_CPP_SOURCE_DIR:-} ]]; then
    check_source_version "$LLAMA_CPP_SOURCE_DIR"
    printf '%s\n' "$LLAMA_CPP_SOURCE_DIR"
    return
  fi
  if ! [[ -d $fetched ]]; then
    fetch_source "$fetched"
  fi
  printf '%s\n' "$fetched"
}

fetch_source() {
  local target=$1 work archive
  work=$deps_dir/fetch.$$
  rm -rf "$work"
  mkdir -p "$work"
  say "fetching the llama.cpp $llama_version source (35 MB, npm package $npm_package)"
  (cd "$work" && npm pack --silent --ignore-scripts "$npm_package" >/dev/null </dev/null) ||
    die "npm could not fetch $npm_package; set LLAMA_CPP_SOURCE_DIR to a llama.cpp v$llama_version tree"
  archive=$(echo "$work"/*.tgz)
  echo "$npm_package_sha512  $archive" | sha512sum --check --status ||
    die "$npm_package does not have the pinned SHA-512; nothing of it was used"
  tar -xzf "$archive" -C "$work" package/llama/gitRelease.bundle \
    package/llama/binariesGithubRelease.json
  grep -q "\"v$llama_version\"" "$work/package/llama/binariesGithubRelease.json" ||
    die "$npm_package carries another llama.cpp release than v$llama_version"
  git -c advice.detachedHead=false clone --quiet "$work/package/llama/gitRelease.bundle" "$work/source"
  check_source_version "$work/source"
  mv "$work/source" "$target"
  rm -rf "$work"
}

# --- llama.cpp: build -----------------------------------------------------------------------------

build_llama() {
  local source=$1 build=$2 launcher=() options
  shift 2
  mapfile -t options < <(cmake_options)
  if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  mkdir -p "$build"
  cmake -G Ninja -S "$source" -B "$build" "${options[@]}" "${launcher[@]}" \
    >"$build/configure.log" 2>&1 ||
    { tail -n 30 "$build/configure.log" >&2; die "llama.cpp could not be configured"; }
  # Relative paths in ccache's keys: a prefix elsewhere, or of another clone, finds the objects.
  CCACHE_BASEDIR=$deps_dir cmake --build "$build" --parallel "${SKIPPY_JOBS:-$(nproc)}" \
    --target "$@" >&2
}

# Copies what Skippy compiles and links against. The layout is what cmake/SkippyDependencies.cmake
# expects: include/{llama,common,vendor}, lib, bin, share.
stage_llama() {
  local source=$1 build=$2 out=$3 name
  rm -rf "$out"
  mkdir -p "$out"/{include/{llama,common,vendor/{nlohmann,cpp-httplib,sheredom}},lib,bin,share/vocab}
  cp "$source"/include/*.h "$source"/ggml/include/*.h "$out/include/llama/"
  (cd "$source/common" && find . \( -name '*.h' -o -name '*.hpp' \) \
    -exec cp --parents -t "$out/include/common" {} +)
  cp "$source"/vendor/nlohmann/*.hpp "$out/include/vendor/nlohmann/"
  cp "$source"/vendor/cpp-httplib/httplib.h "$out/include/vendor/cpp-httplib/"
  cp "$source"/vendor/sheredom/*.h "$out/include/vendor/sheredom/"
  find "$build" -name 'lib*.a' -exec cp {} "$out/lib/" \;
  cp "$build/bin/test-llama-archs" "$out/bin/"
  for name in "${vocabularies[@]}"; do
    cp "$source/models/ggml-vocab-$name.gguf" "$out/share/vocab/"
  done
  cp "$source/LICENSE" "$out/share/"
}

# True when an installed llama.cpp of the right version has everything that the prefix must have.
# Distributions ship neither the common library nor its headers, so it is rarely used.
installed_prefix() {
  local prefix
  [[ $(pkg-config --modversion llama 2>/dev/null) == "$llama_version" ]] || return 1
  prefix=$(pkg-config --variable=prefix llama)
  if [[ -f $prefix/lib/libllama-common.a && -f $prefix/include/common/chat.h &&
        -f $prefix/include/vendor/nlohmann/json.hpp && -x $prefix/bin/test-llama-archs ]]; then
    printf '%s\n' "$prefix"
  else
    say "the installed llama.cpp $llama_version lacks its common library; building our own"
    return 1
  fi
}

make_prefix() {
  local variant=$1 source installed
  local prefix=$variant/prefix
  if [[ -z ${LLAMA_CPP_SOURCE_DIR:-} && $cuda != 1 ]] && installed=$(installed_prefix); then
    mkdir -p "$variant"
    cp -r "$installed/." "$prefix.partial"
  else
    source=$(llama_source)
    say "building llama.cpp $llama_version in $variant (once for all presets, some minutes)"
    build_llama "$source" "$variant/build" "${llama_targets[@]}"
    stage_llama "$source" "$variant/build" "$prefix.partial"
  fi
  build_description >"$prefix.partial/.complete"
  sync -f "$prefix.partial"
  rm -rf "$prefix"
  mv "$prefix.partial" "$prefix"
}

make_peers() {
  local variant=$1
  build_llama "$(llama_source)" "$variant/build" llama-server
  cp "$variant/build/bin/llama-server" "$variant/prefix/bin/llama-server.partial"
  mv "$variant/prefix/bin/llama-server.partial" "$variant/prefix/bin/llama-server"
  say "llama-server: $variant/prefix/bin/llama-server"
}

# Everything below the lock is done by one process at a time; a second one finds it done.
prepare_llama() {
  local variant
  variant=$(variant_dir)
  if is_complete "$variant/prefix" && { [[ $peers == 0 ]] || [[ -x $variant/prefix/bin/llama-server ]]; }
  then
    return
  fi
  mkdir -p "$deps_dir"
  exec 9>"$deps_dir/lock"
  flock -n 9 || { say "waiting for another set-up to finish"; flock 9; }
  if ! is_complete "$variant/prefix"; then
    make_prefix "$variant"
  fi
  if [[ $peers == 1 && ! -x $variant/prefix/bin/llama-server ]]; then
    make_peers "$variant"
  fi
}

usage() { sed -n '2,/^set -e/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; }

main() {
  local print_only=0
  cuda=${SKIPPY_CUDA:-0}
  peers=0
  tests=0
  while [[ $# -gt 0 ]]; do
    case $1 in
      --cuda) cuda=1 ;;
      --peers) peers=1 ;;
      --tests) tests=1 ;;
      --print-llama-prefix) print_only=1 ;;
      -h | --help) usage; exit 0 ;;
      *) die "unknown argument: $1 (see --help)" ;;
    esac
    shift
  done
  if [[ $print_only == 1 ]]; then
    printf '%s/prefix\n' "$(variant_dir)"
    return
  fi
  install_packages
  prepare_llama
}

main "$@"
