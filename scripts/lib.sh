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

# set_up_packaged_petsc: the same for the PETSc of the distribution, whatever was set up before. It is an older release without
# CUDA, for what is built without CUDA anyway.
set_up_packaged_petsc() {
  unset PETSC_DIR PETSC_ARCH FINEPC_PYTHON
  set_up_petsc --packaged
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
  if command -v ccache >/dev/null; then
    options+=(-DCMAKE_{C,CXX,CUDA}_COMPILER_LAUNCHER=ccache)
    export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros} # for precompiled headers
  fi
  cmake -S "$root" -B "$folder" "${generator[@]}" "${options[@]}"
  echo "$PETSC_DIR/$PETSC_ARCH" >"$stamp"
}

# build FOLDER [TARGET...]
build() { cmake --build "$1" --parallel "$(nproc)" ${2:+--target "${@:2}"}; }

# stage TITLE COMMAND [ARGUMENT..]: runs one stage of the tests and says how long all of them have taken so far.
stage() {
  printf '\n%s: %s\n' "$(basename "$0")" "$1"
  "${@:2}"
  printf '%s: %s: done, %d min %02d s since the start\n' "$(basename "$0")" "$1" $((SECONDS / 60)) $((SECONDS % 60))
}

# cuda_options: CMake's options for the kernels of this machine: those of its GPU, or else machine code and PTX for compute
# capability 9.0. In CI without a GPU it is the PTX alone, since ptxas takes a quarter of the build, with few of the optimizations,
# which take another one: nothing runs it there. A GPU compiles PTX when the kernels are loaded. Archives for other machines are
# built with CMake's own default, which has 8.0, too.
cuda_options() {
  local capability nvcc=${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sed -n '1s/[. ]//gp') || true
  echo "-DCMAKE_CUDA_ARCHITECTURES=${capability:-90${CI:+-virtual}}"
  if [ -z "$capability" ] && [ -n "${CI:-}" ] && [[ $("$nvcc" --help 2>/dev/null) == *-Ofc* ]]; then
    echo "-DCMAKE_CUDA_FLAGS=-Ofc=max"
  fi
}

# configure_build: configures what scripts/test builds.
configure_build() {
  local options
  mapfile -t options < <(cuda_options)
  configure "$build_dir" "${options[@]}"
}

# build_finepc [TARGET...]: sets PETSc up, configures and builds the targets, or all of them.
build_finepc() {
  set_up_petsc
  configure_build
  build "$build_dir" "$@"
}

# run_in FOLDER TEST..: runs these tests of a build.
run_in() { ctest --test-dir "$1" --output-on-failure -j "$(nproc)" --no-tests=error -R "^($(IFS='|' && echo "${*:2}"))\$"; }

# test_with_sanitizers "TARGET.." TEST..: builds these programs as a machine without CUDA does, the host twins alone, in a folder of
# their own and with the sanitizers of addresses and of undefined behaviour, and runs these tests there.
test_with_sanitizers() {
  local folder=$build_dir/sanitizers targets
  read -ra targets <<<"$1"
  configure "$folder" -DFINEPC_CUDA=OFF -DFINEPC_SANITIZE=ON
  build "$folder" "${targets[@]}"
  run_in "$folder" "${@:2}"
}

# test_in_emulator TEST..: builds the test programs with the emulator of a GPU, and that of the host, in a folder of their own,
# without sanitizers, which would not let ranks exchange the emulator's memory, and runs these tests there. Most of its time goes to
# the compiler, which -O1 has do less.
test_in_emulator() {
  local folder=$build_dir/emulator
  configure "$folder" -DFINEPC_CUDA=OFF -DFINEPC_EMULATOR=ON "-DCMAKE_CXX_FLAGS_RELEASE=-O1"
  build "$folder" finepc_emulated_tests finepc_emulated_ranks finepc_emulated_offload finepc_tests
  run_in "$folder" "$@"
}
