# finepc for Spack: a file packages/finepc/package.py of a repository of one's own, whose `git` is
# the address that finepc was cloned from.
from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Finepc(CMakePackage, CudaPackage):
    """Fine-grained preconditioners and solvers for PETSc, on GPUs and hosts."""

    homepage = "https://petsc.org"
    git = "file:///path/finepc"

    license("BSD-2-Clause")

    version("main", branch="main")

    variant(
        "try", default=True, description="Install finepc-try, which compares solvers on a matrix"
    )

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi")
    depends_on("petsc@3.18:3.26 +mpi +shared ~complex +double")
    # finepc has the GPU by itself where PETSc has no CUDA
    for arch in CudaPackage.cuda_arch_values:
        depends_on(f"petsc cuda_arch={arch}", when=f"+cuda cuda_arch={arch} ^petsc+cuda")
    with when("+try"):
        depends_on("nlohmann-json@3.9:", type="build")
        depends_on("py-numpy", type="run")
        depends_on("py-scipy", type="run")

    conflicts(
        "cuda_arch=none",
        when="+cuda",
        msg="name the compute capability, for instance cuda_arch=90",
    )

    def cmake_args(self):
        arguments = [
            self.define_from_variant("FINEPC_CUDA", "cuda"),
            self.define("FINEPC_BUILD_TESTS", False),
            self.define("CMAKE_DISABLE_FIND_PACKAGE_nlohmann_json", self.spec.satisfies("~try")),
        ]
        if self.spec.satisfies("+cuda"):
            arguments.append(
                self.define("CMAKE_CUDA_ARCHITECTURES", self.spec.variants["cuda_arch"].value)
            )
        return arguments

    def setup_build_environment(self, env: EnvironmentModifications) -> None:
        env.set("PETSC_DIR", self.spec["petsc"].prefix)
