"""What builds the package: generate.py leaves nothing out in silence, and find_petsc.py finds the PETSc of an environment."""
import os
import re
import subprocess
import sys
import venv

import pytest

SOURCE = os.path.normpath(os.path.join(os.path.dirname(__file__), "..", ".."))


def run(*command, env=None):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100, env=env)


@pytest.mark.parametrize("declaration, error", [
    ("PetscErrorCode PCAFSAISetMaxSteps(PC, PetscRandom);", "PCAFSAISetMaxSteps takes a PetscRandom"),
    ("PetscErrorCode PCAFSAIGetMaxSteps(PC, PetscRandom *);", "PCAFSAIGetMaxSteps gives a PetscRandom"),
    ("PetscErrorCode PCAFSAIGetMaxSteps(PC, PetscInt *, PetscInt *);", "manual page of PCAFSAIGetMaxSteps has the parameters"),
    ("PetscErrorCode PCAFSAIGetMaxSteps(PC, Mat *);", "does not say whether the caller destroys the matrix"),
    ("PetscErrorCode PCAFSAISetColour(PC, PetscInt);", "PCAFSAISetColour has no manual page"),
])
def test_generate_says_what_it_does_not_understand(tmp_path, declaration, error):
    (tmp_path / "include").mkdir()
    (tmp_path / "src").symlink_to(f"{SOURCE}/src")
    with open(f"{SOURCE}/include/finepc.h", encoding="utf-8") as f:
        (tmp_path / "include" / "finepc.h").write_text(f"{f.read()}PETSC_EXTERN {declaration}\n")
    output = tmp_path / "_api.py"
    result = run(sys.executable, f"{SOURCE}/python/generate.py", "--source", str(tmp_path), "--output", str(output))
    assert result.returncode != 0 and error in result.stdout, result.stdout
    assert not output.exists()


def test_find_petsc(tmp_path):
    """Nothing; then PyPI's petsc; then the one that petsc4py was compiled with, unless that is gone. A petsc4py without any PETSc
    is not to be replaced."""
    venv.create(tmp_path / "environment", symlinks=True)
    python = str(tmp_path / "environment" / "bin" / "python")
    packages = tmp_path / "environment" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"

    def found():
        result = run(python, f"{SOURCE}/python/find_petsc.py")
        assert result.returncode == 0, result.stdout
        return result.stdout.strip()

    def make_petsc(folder):
        (folder / "lib" / "pkgconfig").mkdir(parents=True)
        (folder / "lib" / "pkgconfig" / "PETSc.pc").touch()

    def refused(*texts):
        result = run(python, f"{SOURCE}/python/find_petsc.py")
        assert result.returncode == 1 and all(text in result.stdout for text in texts), result.stdout

    refused("No PETSc and no petsc4py", "Install petsc4py there first")
    (packages / "petsc4py" / "lib").mkdir(parents=True)
    config = packages / "petsc4py" / "lib" / "petsc.cfg"
    for gone in ("PETSC_DIR  =\nPETSC_ARCH =\n", f"PETSC_DIR  = {tmp_path}/gone\nPETSC_ARCH =\n"):
        config.write_text(gone)
        refused("loads no libpetsc", "Do not install another petsc4py")
    make_petsc(packages / "petsc")
    assert found() == f"{packages}/petsc;"
    config.write_text(f"PETSC_DIR  = {tmp_path}/petsc\nPETSC_ARCH = arch-a{os.pathsep}arch-b\n")
    assert found() == f"{packages}/petsc;"
    make_petsc(tmp_path / "petsc" / "arch-a")
    assert found() == f"{tmp_path}/petsc;arch-a"


PIP = """#!/bin/sh
# pip download, with sources whose configure writes down its options
[ "$1" = download ] || exit 0
mkdir petsc-3.25.5 petsc-3.25.5/include && touch petsc-3.25.5/include/petsc.h
cat >petsc-3.25.5/configure <<'END'
import os, sys
os.makedirs("headers/include")
open("headers/include/petscconf.h", "w").write("\\n".join(sys.argv[1:]))
END
while [ "$1" != -d ]; do shift; done
tar -czf "$2/petsc-3.25.5.tar.gz" petsc-3.25.5
"""


def test_headers_for_a_petsc_without(tmp_path):
    """A petsc4py whose PETSc is a library alone, as in FEniCSx's wheel, gets headers of that release, configured as the library
    was. They are refused for another MPI and for a PETSc with devices, and PyPI's petsc is not taken in their place."""
    venv.create(tmp_path / "environment", symlinks=True)
    packages = tmp_path / "environment" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    lib = packages / "petsc4py" / "lib"
    for folder in (lib, tmp_path / "bin", tmp_path / "work", packages / "petsc" / "lib" / "pkgconfig"):
        folder.mkdir(parents=True)
    (lib / "petsc.cfg").write_text("PETSC_DIR  =\nPETSC_ARCH =\n")
    (packages / "petsc" / "lib" / "pkgconfig" / "PETSc.pc").touch()
    (tmp_path / "bin" / "pip").write_text(PIP)
    (tmp_path / "bin" / "pip").chmod(0o755)
    settings = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}

    def compiled(compiler, source, library, *arguments):
        (tmp_path / "source.c").write_text(source)
        result = run(compiler, "-shared", "-fPIC", str(tmp_path / "source.c"), "-o", str(lib / library), *arguments)
        assert result.returncode == 0, result.stdout

    def find(compiler, options, *arguments):
        """Makes libpetsc, and petsc4py's module that needs it, and looks for its headers."""
        compiled(compiler, f'const char *options = "--prefix=/built --with-cc=/built/mpicc {options}";'
                 "int PetscGetVersionNumber(int *a, int *b, int *c, int *d) { *a = 3; *b = 25; *c = 5; *d = 1; return 0; }",
                 "libpetsc.so.3.25", "-Wl,-soname,libpetsc.so.3.25", *arguments)
        compiled("cc", "", "PETSc.abi3.so", "-Wl,--no-as-needed", str(lib / "libpetsc.so.3.25"), "-Wl,-rpath,$ORIGIN")
        return subprocess.run([str(tmp_path / "environment" / "bin" / "python"), f"{SOURCE}/python/find_petsc.py"], env=settings,
                              cwd=tmp_path / "work", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100)

    needs_mpi = ["-Wl,--no-as-needed"]
    built_with = "--with-precision=double --with-64-bit-blas-indices --with-hdf5-dir=/built --with-debugging=0"
    found = find("mpicc", built_with, *needs_mpi)
    assert found.returncode == 0, found.stderr
    folder = found.stdout.strip().rstrip(";")
    assert os.path.dirname(folder) == str(tmp_path / "cache" / "finepc") and os.path.exists(f"{folder}/include/petsc.h")
    assert os.path.realpath(f"{folder}/lib/libpetsc.so") == str(lib / "libpetsc.so.3.25")
    with open(f"{folder}/include/petscconf.h", encoding="utf-8") as f:
        options = f.read().split("\n")
    assert {"--with-precision=double", "--with-debugging=0", "--known-64-bit-blas-indices=1", "--with-fc=0"} <= set(options)
    assert not any("/built" in option for option in options)
    libdir = run("pkg-config", "--variable=libdir", "PETSc", env={**settings, "PKG_CONFIG_PATH": f"{folder}/lib/pkgconfig"})
    assert libdir.stdout.strip() == str(lib)

    for option, why in (("--with-cuda=1", "was configured with --with-cuda=1"), ("--with-scalar-type=complex", "complex numbers")):
        refused = find("mpicc", option, *needs_mpi)
        assert refused.returncode == 1 and why in refused.stderr, refused.stderr
    compiled("cc", "", "libmpi.so.12", "-Wl,-soname,libmpi.so.12")
    refused = find("cc", "", *needs_mpi, str(lib / "libmpi.so.12"), "-Wl,-rpath,$ORIGIN")
    assert refused.returncode == 1 and "has another MPI than" in refused.stderr, refused.stderr


def test_pip_is_refused_where_no_petsc_is_found(tmp_path):
    """CMake ends where find_petsc.py finds none, and pip is not asked for a petsc4py, which it would compile over the one there."""
    with open(f"{SOURCE}/pyproject.toml", encoding="utf-8") as f:
        wanted = re.findall(r"^(?:requires|dependencies) = \[(.*?)\]$", f.read(), re.M)
    assert len(wanted) == 2 and not any("petsc" in packages for packages in wanted), wanted
    venv.create(tmp_path / "environment", symlinks=True)
    settings = {name: value for name, value in os.environ.items() if name not in ("PETSC_DIR", "PETSC_ARCH")}
    result = run("cmake", "-S", SOURCE, "-B", str(tmp_path / "build"), "-DSKBUILD=2", "-DFINEPC_CUDA=OFF",
                 f"-DPython3_EXECUTABLE={tmp_path}/environment/bin/python", env=settings)
    assert result.returncode != 0 and "No PETSc and no petsc4py in the environment of" in result.stdout, result.stdout
