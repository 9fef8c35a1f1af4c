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
    """Nothing; then PyPI's petsc; then the one that petsc4py was compiled with, unless that is gone. A petsc4py whose PETSc has no
    headers, as FEniCSx's wheel has it, is not to be replaced."""
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
    (packages / "petsc4py" / "__init__.py").write_text("__version__ = '3.25.5'\n")
    config = packages / "petsc4py" / "lib" / "petsc.cfg"
    for gone in ("PETSC_DIR  =\nPETSC_ARCH =\n", f"PETSC_DIR  = {tmp_path}/gone\nPETSC_ARCH =\n"):
        config.write_text(gone)
        refused("petsc4py 3.25.5 in", "Do not install another petsc4py", "set PETSC_DIR")
    make_petsc(packages / "petsc")
    assert found() == f"{packages}/petsc;"
    config.write_text(f"PETSC_DIR  = {tmp_path}/petsc\nPETSC_ARCH = arch-a{os.pathsep}arch-b\n")
    assert found() == f"{packages}/petsc;"
    make_petsc(tmp_path / "petsc" / "arch-a")
    assert found() == f"{tmp_path}/petsc;arch-a"


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
