# Shared by the scripts beside it:  source "$(dirname "$0")/lib.sh"
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build_dir=$(realpath -m "${FINEPC_BUILD_DIR:-$root/build}")

# build_finepc TARGET...: sets PETSc up, configures and builds the targets. Leaves PETSC_DIR and its like in the environment.
build_finepc() {
  local settings stamp=$build_dir/petsc-used options=() generator=()
  settings=$("$root/scripts/setup" --env) # not eval "$(...)": that would go on after a failed set-up
  eval "$settings"

  # CMake remembers what it found in PETSc, so another PETSc needs another start.
  if [ "$(cat "$stamp" 2>/dev/null)" != "$PETSC_DIR/$PETSC_ARCH" ]; then
    rm -rf "$build_dir/CMakeCache.txt" "$build_dir/CMakeFiles"
  fi
  # Ninja uses all cores by itself; a folder that was configured with another generator keeps it.
  if [ ! -e "$build_dir/CMakeCache.txt" ] && command -v ninja >/dev/null; then generator=(-G Ninja); fi
  if [ -n "${CI:-}" ]; then options+=(-DFINEPC_WERROR=ON); fi
  cmake -S "$root" -B "$build_dir" "${generator[@]}" "${options[@]}"
  echo "$PETSC_DIR/$PETSC_ARCH" >"$stamp"
  cmake --build "$build_dir" --parallel "$(nproc)" ${1:+--target "$@"}
}
