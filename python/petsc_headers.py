"""Headers for a PETSc that comes as a library alone, as in the wheel of FEniCSx, so that finepc can be compiled for it.

They are those of PyPI's source release of the same number, configured as the library says that it was, with the environment's own
MPI compiler. Nothing of PETSc is compiled or installed: the headers, a PETSc.pc and links to the library go to a folder of the
cache, and the environment stays as it is."""
import glob
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile

# Options of PETSc's configure that change its headers; compilers, packages and paths do not concern who includes them.
KEPT = re.compile(r"--with-(scalar-type|precision|64-bit-indices|debugging|log|info|memalign|strict-petscerrorcode)=")
# What changes its objects, and could not be configured without the packages themselves
REFUSED = re.compile(r"--(with|download)-(cuda|hip|sycl|kokkos|viennacl|opencl|nvshmem|saws|threadsafety)(-dir|-lib)?(=(?!0|no)|$)")
# Links PETSc alone, with the compiler whose headers finepc will be compiled with. PETSc's integers may have 64 bits.
PROBE = """
#include <mpi.h>
#include <stdio.h>
int PetscGetVersionNumber(long long *, long long *, long long *, long long *);
int main(void)
{
  long long version[4] = {0, 0, 0, 0};
  char      mpi[MPI_MAX_LIBRARY_VERSION_STRING];
  int       length;
  PetscGetVersionNumber(version, version + 1, version + 2, version + 3);
  MPI_Get_library_version(mpi, &length);
  return printf("%lld.%lld.%lld %s", version[0], version[1], version[2], mpi) < 0;
}
"""


class NoHeaders(Exception):
    """Why there are none, as a sentence"""


def run(command, **settings):
    environment = {key: value for key, value in os.environ.items()
                   if key not in ("PETSC_DIR", "PETSC_ARCH", "PETSC_CONFIGURE_OPTIONS", "PYTHONPATH", "PYTHONNOUSERSITE")}
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment,
                          **settings)


def library_of(petsc4py):
    """The libpetsc that this folder of petsc4py loads, or None"""
    for module in sorted(glob.glob(f"{petsc4py}/lib/**/PETSc.*so", recursive=True)):
        found = re.search(r"^\s*libpetsc\S* => (/\S.*) \(0x", run(["ldd", module]).stdout, re.M)
        if found:
            return os.path.realpath(found.group(1))
    return None


def mpi_compilers(prefix):
    """The environment's own mpicc and mpicxx, or else those of PATH"""
    found = [shutil.which(name, path=f"{prefix}/bin") or shutil.which(name) for name in ("mpicc", "mpicxx")]
    if None in found:
        raise NoHeaders(f"There is neither {prefix}/bin/mpicc and mpicxx nor one of PATH.")
    return found


def probe(library, mpicc):
    """The release of the library and what its MPI says of itself, where that is the MPI of this compiler"""
    with tempfile.TemporaryDirectory() as work:
        with open(f"{work}/probe.c", "w") as f:
            f.write(PROBE)
        linked = run([mpicc, f"{work}/probe.c", "-o", f"{work}/probe", library, f"-Wl,-rpath,{os.path.dirname(library)}",
                      "-Wl,--allow-shlib-undefined"])
        if linked.returncode:
            raise NoHeaders(f"A program could not be linked with {library} by {mpicc}:\n{linked.stdout}")
        loaded = run(["ldd", f"{work}/probe"]).stdout
        mpis = sorted(set(re.findall(r"^\s*(libmpi\.so\S*) => ", loaded, re.M)))
        ran = run([f"{work}/probe"])
        found = re.match(r"(\d+\.\d+\.\d+) (.*)", ran.stdout, re.S)
    if len(mpis) != 1:
        raise NoHeaders(f"{library} has another MPI than {mpicc}: a program with both needs {' and '.join(mpis) or 'no libmpi'}. "
                        "Install the MPI of this PETSc, with its mpicc and mpicxx, into the environment, or put it first in PATH.")
    if ran.returncode or not found:
        raise NoHeaders(f"A program with {library} and the MPI of {mpicc} does not run:\n{ran.stdout}\n{loaded}")
    return found.groups()


def options_of(library):
    """The options that the library was configured with, which it has as one string"""
    with open(library, "rb") as f:
        text = max(f.read().split(b"\0"), key=lambda text: text.count(b" --with-"))
    options = shlex.split(text.decode(errors="replace"))
    if not any(option.startswith(("--with-", "--prefix=")) for option in options):
        raise NoHeaders(f"{library} does not say how it was configured.")
    if "--with-scalar-type=complex" in options:
        raise NoHeaders(f"{library} has complex numbers, and finepc needs real ones: those of FEniCSx's dolfinx-solver-real.")
    for option in options:
        if REFUSED.match(option):
            raise NoHeaders(f"{library} was configured with {option}, which headers alone cannot follow.")
    wide_blas = any(re.match("--with-64-bit-blas-indices(=1|=yes|$)", option) for option in options)
    return [option for option in options if KEPT.match(option)] + [f"--known-64-bit-blas-indices={int(wide_blas)}"]


def blas_of(library):
    """The library's BLAS, where it lies beside it"""
    needed = re.findall(r"\[(lib(?:\w*blas|lapack|mkl_rt|flame)\.so\S*)\]", run(["readelf", "-d", library]).stdout)
    return [path for path in (f"{os.path.dirname(library)}/{name}" for name in needed) if os.path.exists(path)]


def fetch(release, folder):
    """The unpacked sources of this release"""
    pip = [sys.executable, "-m", "pip"] if run([sys.executable, "-m", "pip", "--version"]).returncode == 0 else ["pip"]
    if not shutil.which(pip[0]):
        raise NoHeaders("There is no pip to fetch them with.")
    fetched = run([*pip, "download", "--no-deps", "--no-binary", "petsc", "-d", folder, f"petsc=={release}"])
    archives = glob.glob(f"{folder}/petsc-*.tar.gz")
    if fetched.returncode or not archives:
        raise NoHeaders(f"The source release petsc=={release} could not be fetched from PyPI:\n{fetched.stdout}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder) # pip has compared it with the index's checksum
    return f"{folder}/petsc-{release}"


def configure(source, options):
    """Configures these sources, and gives the folder of the headers that this has written."""
    configured = run([sys.executable, "./configure", "PETSC_ARCH=headers", *options], cwd=source)
    if configured.returncode:
        raise NoHeaders(f"./configure {shlex.join(options)} failed in the sources of PETSc:\n{configured.stdout[-3000:]}")
    return f"{source}/headers/include"


def write_pc(folder, release, library, blas, compilers):
    """PETSc.pc and the links that the linker looks for. What runs finds the library where it is: `libdir` is its own folder."""
    for path, name in [(library, "petsc"), *((path, re.match("lib(.*?).so", os.path.basename(path))[1]) for path in blas)]:
        os.symlink(path, f"{folder}/lib/lib{name}.so")
    private = " ".join("-l" + re.match("lib(.*?).so", os.path.basename(path))[1] for path in blas)
    with open(f"{folder}/lib/pkgconfig/PETSc.pc", "w") as f:
        f.write(f"""prefix=${{pcfiledir}}/../..
includedir=${{prefix}}/include
libdir={os.path.dirname(library)}
ccompiler={compilers[0]}
cxxcompiler={compilers[1]}

Name: PETSc
Description: the library {library} with headers of its release
Version: {release}
Cflags: -I${{includedir}}
Libs: -L${{prefix}}/lib -lpetsc -Wl,--allow-shlib-undefined
Libs.private: -L${{prefix}}/lib {private}
""")


def headers_for(library, prefix):
    """PETSC_DIR with headers for this library in the environment with this prefix; made when it is needed first"""
    compilers = mpi_compilers(prefix)
    release, mpi = probe(library, compilers[0])
    options, blas = options_of(library), blas_of(library)
    options += [f"--with-cc={compilers[0]}", f"--with-cxx={compilers[1]}", "--with-fc=0", "--with-cudac=0", "--with-x=0"]
    options += [f"--with-blaslapack-lib=[{','.join(blas)}]"] if blas else []
    key = hashlib.sha256("\n".join([library, mpi, *options]).encode()).hexdigest()[:10]
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "finepc")
    folder = f"{cache}/headers-{release}-{key}"
    if os.path.exists(folder):
        return folder
    print(f"finepc: headers of PETSc {release} for {library} are fetched and configured once, in a minute or two", file=sys.stderr)
    os.makedirs(cache, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="headers-") as work:
        source = fetch(release, work)
        shutil.copytree(f"{source}/include", f"{work}/made/include")
        shutil.copytree(configure(source, options), f"{work}/made/include", dirs_exist_ok=True)
        os.makedirs(f"{work}/made/lib/pkgconfig")
        write_pc(f"{work}/made", release, library, blas, compilers)
        try:
            os.rename(f"{work}/made", folder)
        except OSError: # another one has made it meanwhile
            if not os.path.exists(folder):
                raise
    return folder
