# Shared by the scripts beside it:  source "$(dirname "$0")/lib.sh"
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build_dir=$(realpath -m "${FINEPC_BUILD_DIR:-$root/build}")

# set_up_petsc [OPTION...]: PETSC_DIR and what else scripts/setup says are in the environment afterwards; the options are its own.
set_up_petsc() {
  local settings
  settings=$("$root/scripts/setup" --env "$@") # not eval "$(...)": that would go on after a failed set-up
  eval "$settings"
}

# configure FOLDER [OPTION...]: makes CMake's build folder; the options are CMake's.
configure() {
  local folder=$1 stamp=$1/petsc-used options=("${@:2}") generator=()
  # CMake remembers what it found in PETSc, so another PETSc needs another start.
  if [ "$(cat "$stamp" 2>/dev/null)" != "$PETSC_DIR/$PETSC_ARCH" ]; then
    rm -rf "$folder/CMakeCache.txt" "$folder/CMakeFiles"
  fi
  # Ninja uses all cores by itself; a folder that was configured with another generator keeps it.
  if [ ! -e "$folder/CMakeCache.txt" ] && command -v ninja >/dev/null; then generator=(-G Ninja); fi
  if [ -n "${CI:-}" ]; then options+=(-DFINEPC_WERROR=ON); fi
  cmake -S "$root" -B "$folder" "${generator[@]}" "${options[@]}"
  echo "$PETSC_DIR/$PETSC_ARCH" >"$stamp"
}

# build FOLDER [TARGET...]
build() { cmake --build "$1" --parallel "$(nproc)" ${2:+--target "${@:2}"}; }

# build_finepc [TARGET...]: sets PETSc up, configures and builds the targets, or all of them.
build_finepc() {
  set_up_petsc
  configure "$build_dir"
  build "$build_dir" "$@"
}

# test_with_sanitizers: builds what a machine without CUDA builds, the host twins alone, in a folder of its own and with the
# sanitizers of addresses and of undefined behaviour, and runs the test program, kernels on the host, the fuzzer and the test of the
# documentation.
test_with_sanitizers() {
  local folder=$build_dir/sanitizers
  configure "$folder" -DFINEPC_CUDA=OFF -DFINEPC_SANITIZE=ON
  build "$folder"
  ctest --test-dir "$folder" --output-on-failure -j "$(nproc)" \
    -R '^(finepc_tests|finepc_tests_rest|finepc_tests_2_ranks|emulated_random|fuzz|fuzz_2_ranks|docs)$'
}

# test_emulated_ranks: builds the test program with the emulator of a GPU in a folder of its own, without sanitizers, which would
# not let ranks exchange the emulator's memory, and runs the cases of kernels on two ranks. Most of its time goes to the compiler,
# which -O1 has do less.
test_emulated_ranks() {
  local folder=$build_dir/emulator
  configure "$folder" -DFINEPC_CUDA=OFF -DFINEPC_EMULATOR=ON "-DCMAKE_CXX_FLAGS_RELEASE=-O1"
  build "$folder" finepc_emulated_tests
  ctest --test-dir "$folder" --output-on-failure -R '^emulated_(ranks|messages)_2$'
}
