# %% [markdown]
# # finepc from Python
#
# This tutorial is a Python program with cells (`# %%`), which VS Code, Spyder, and Jupyter with jupytext show as a notebook.
# `python tutorials/python_tutorial.py` runs it as it is. It needs petsc4py, the package finepc, scipy and scikit-fem.
#
# Diffusion in a square whose conductivity jumps by a factor of 1000 is solved with preconditioners of finepc for symmetric positive
# definite matrices, beside two of PETSc. Then options are set from Python, the factor and the hierarchy are looked at, and a
# time-dependent problem uses one preconditioner for many steps.

# %% [markdown]
# ## Load finepc
# `finepc.load()` registers all types with PETSc. PETSc may be initialized already, here by petsc4py, elsewhere by FEniCSx or
# Firedrake.

# %%
import time

import numpy
import scipy.sparse
import skfem
from petsc4py import PETSc
from skfem.models.poisson import mass

import finepc

finepc.load()
print("finepc", finepc.__version__, "with PETSc", ".".join(str(number) for number in PETSc.Sys.getVersion()))

# %% [markdown]
# ## A matrix
# scikit-fem assembles the stiffness matrix of bilinear elements. The unknowns of the boundary are taken away.

# %%
points = 97
mesh = skfem.MeshQuad.init_tensor(numpy.linspace(0, 1, points), numpy.linspace(0, 1, points))
basis = skfem.Basis(mesh, skfem.ElementQuad1())


def conductivity(x):
    """1000 in a chequerboard of 4 x 4 fields, and 1 in the others"""
    field = numpy.floor(4 * x[0]) + numpy.floor(4 * x[1])
    return numpy.where(field % 2 == 0, 1000.0, 1.0)


@skfem.BilinearForm
def diffusion(u, v, w):
    return conductivity(w.x) * (u.grad[0] * v.grad[0] + u.grad[1] * v.grad[1])


free = mesh.interior_nodes()
stiffness = diffusion.assemble(basis)[free][:, free].tocsr()
load = skfem.LinearForm(lambda v, _: 1.0 * v).assemble(basis)[free]


def petsc_matrix(A):
    A.sort_indices()
    arrays = A.indptr.astype(PETSc.IntType), A.indices.astype(PETSc.IntType), A.data
    return PETSc.Mat().createAIJ(A.shape, csr=arrays, comm=PETSc.COMM_SELF)


A = petsc_matrix(stiffness)
b = PETSc.Vec().createWithArray(load, comm=PETSc.COMM_SELF)
print(A.getSize()[0], "unknowns,", int(A.getInfo()["nz_used"]), "nonzeros")

# %% [markdown]
# On a machine with a GPU, `A.setType("aijcusparse")` before the values are set, and vectors from `A.createVecs()`, have everything
# run there; the rest of this program stays as it is.

# %% [markdown]
# ## Solve with each type
# A type of finepc is a name, as PETSc's own are. The residual is computed anew, for no preconditioner is to be taken at its word.


# %%
def solver(A, pc_type, ksp_type="cg"):
    """A solver that ends when the norm of the residual, b - A x, has fallen by 1e-8"""
    ksp = PETSc.KSP().create(A.getComm())
    ksp.setOperators(A)
    ksp.setType(ksp_type)
    ksp.getPC().setType(pc_type)
    ksp.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
    ksp.setTolerances(rtol=1e-8, max_it=2000)
    ksp.setErrorIfNotConverged(True)
    return ksp


def solve(ksp, b):
    """Solution, seconds of set-up and of the solve, and the true relative residual"""
    start = time.perf_counter()
    ksp.setUp()
    between = time.perf_counter()
    x = b.duplicate()
    ksp.solve(b, x)
    end = time.perf_counter()
    residual = (b - ksp.getOperators()[0] * x).norm() / b.norm()
    return x, between - start, end - between, residual


iterations = {}
print(f"{'type':10} {'iterations':>10} {'set-up':>9} {'solve':>9} {'residual':>10}")
for pc_type in ("jacobi", "icc", finepc.PCAFSAI, finepc.PCSFSAI, finepc.PCCMATCH):
    ksp = solver(A, pc_type)
    _, set_up, seconds, residual = solve(ksp, b)
    iterations[pc_type] = ksp.getIterationNumber()
    print(f"{pc_type:10} {iterations[pc_type]:10} {set_up:7.3f} s {seconds:7.3f} s {residual:10.1e}")
    assert residual < 1e-7
assert iterations["cmatch"] < iterations["afsai"] < iterations["jacobi"]

# %% [markdown]
# ## Set options
# Each option has a setter and a getter with the name that it has in C. Enumerations take a value or the word of the option.
# `help(finepc.PCAFSAISetMaxSteps)` says what a setter does, and `finepc.manual("afsai")` is the page of a type with all options.

# %%
print(finepc.manual("afsai").split("Level:")[0])
for steps in (0, 5, 10, 20, 40):
    ksp = solver(A, finepc.PCAFSAI)
    pc = ksp.getPC()
    finepc.PCAFSAISetMaxSteps(pc, steps)
    finepc.PCAFSAISetTolerance(pc, 0.0)
    finepc.PCAFSAISetSelection(pc, "decrease")
    solve(ksp, b)
    print(f"{finepc.PCAFSAIGetMaxSteps(pc):3} steps: {ksp.getIterationNumber():4} iterations, "
          f"nnz(G)/nnz(A) = {finepc.PCFinePCGetDensity(pc):.2f}")

# %% [markdown]
# A value that cannot be is an error of PETSc with its text.

# %%
try:
    finepc.PCAFSAISetMaxSteps(pc, -1)
    raise AssertionError("a negative number of steps was taken")
except PETSc.Error as error:
    print(error)

# %% [markdown]
# ## Look at the factor
# The factor $G$ of $M^{-1} = G^T G$ is a matrix of petsc4py that belongs to the caller. It is lower triangular, and the diagonal of
# $G A G^T$ is 1.

# %%
ksp = solver(A, finepc.PCAFSAI)
ksp.setUp()
G, Gt = finepc.PCAFSAIGetFactors(ksp.getPC())
rows, columns, values = G.getValuesCSR()
factor = scipy.sparse.csr_matrix((values, columns, rows), shape=G.getSize())
scaled = factor @ stiffness @ factor.T
print(f"G has {factor.nnz / factor.shape[0]:.1f} entries a row; "
      f"the diagonal of G A G^T is 1 to {abs(scaled.diagonal() - 1).max():.1e} in single precision")
assert scipy.sparse.triu(factor, 1).nnz == 0 and abs(scaled.diagonal() - 1).max() < 1e-4

# %% [markdown]
# ## Look at the hierarchy of cmatch

# %%
ksp = solver(A, finepc.PCCMATCH)
ksp.setUp()
operators, prolongators = finepc.PCCMATCHGetHierarchy(ksp.getPC())
for level, operator in enumerate(operators):
    size, nonzeros = operator.getSize()[0], operator.getInfo()["nz_used"]
    print(f"level {level}: {size:5} rows, {nonzeros / size:5.1f} nonzeros a row")
complexity = sum(operator.getInfo()["nz_used"] for operator in operators) / operators[0].getInfo()["nz_used"]
print(f"operator complexity {complexity:.2f}")
assert len(prolongators) == len(operators) - 1 and complexity < 3

# %% [markdown]
# ## Many time steps, one preconditioner
# In $(M + \tau K) u_{k+1} = M u_k + \tau f$ the values change with the step $\tau$, but the nonzeros do not. With
# `PCAFSAISetReusePattern` the pattern of the factor is searched once, and later set-ups compute new values only.

# %%
lumped = scipy.sparse.diags(numpy.asarray(mass.assemble(basis)[free][:, free].sum(axis=1)).ravel())
pattern = stiffness + lumped # the nonzeros of all steps
step = petsc_matrix(pattern.tocsr())
u = b.duplicate()
u.set(0)
ksp = solver(step, finepc.PCAFSAI, finepc.KSPCGFUSED)
finepc.PCAFSAISetReusePattern(ksp.getPC(), True)
ksp.setInitialGuessNonzero(True)
tau = 1e-5
for number in range(6):
    now = (lumped + tau * stiffness).tocsr()
    now.sort_indices()
    step.setValuesCSR(now.indptr.astype(PETSc.IntType), now.indices.astype(PETSc.IntType), now.data)
    step.assemble()
    rhs = PETSc.Vec().createWithArray(lumped @ u.getArray() + tau * load, comm=PETSc.COMM_SELF)
    start = time.perf_counter()
    ksp.setUp()
    set_up = time.perf_counter() - start
    ksp.solve(rhs, u)
    residual = (rhs - step * u).norm() / rhs.norm()
    print(f"step {number}, tau {tau:.1e}: set-up {set_up:.3f} s, {ksp.getIterationNumber():3} iterations, residual {residual:.1e}")
    assert residual < 1e-7
    tau *= 2

# %% [markdown]
# ## Where to go from here
# `finepc.library_path()` is the library for programs in other languages, which load it with `-dll_append`. `finepc.try_matrix(A)`
# tries everything that fits on a matrix of yours and says what is fastest.

# %%
print("The tutorial has come to its end")
