"""Which preconditioners and solvers are tried on a matrix with given properties: finepc's, PETSc's own, and those of other packages
that this PETSc has."""
import dataclasses

from . import rules

AFSAI_STEPS = 20  # as many as a row takes by default
FINEPC_TYPES = ("afsai", "sfsai", "bisai", "rrb", "cmatch", "cgfused", "gmresfused", "rrbcg", "baijcuda", "cudss")
PACKAGES = ("cudss", "mumps", "superlu_dist", "hypre", "air", "amgx")  # which finepc_bench -check looks for


@dataclasses.dataclass
class Candidate:
    label: str
    options: str  # as the benchmark program takes them: -mat_type block is BAIJ in the memory of the backend
    backend: str  # host or cuda
    bound: float = 1.0  # the tolerance of the solver over that of the true residual
    sent: bool = False  # to the GPU, where PETSc has no CUDA and the host has the matrix

    @property
    def matrix_type(self):
        cuda = self.backend == "cuda" and not self.sent
        if "-mat_type block" in self.options:
            return "baijcuda" if cuda else "baij"
        return "aijcusparse" if cuda else "aij"

    @property
    def direct(self):
        return "-pc_factor_mat_solver_type" in self.options.split()

    @property
    def baseline(self):
        """Whether it is of PETSc alone, the type of its matrix, too; whatever else needs the library"""
        return not any(word in FINEPC_TYPES for word in (self.matrix_type, *self.options.split()))


def candidates(properties, backend, ranks, kind=None, packages=(), thorough=False):
    """All candidates for a matrix, on one backend; `kind` instead of that of the properties, and `packages` of this PETSc"""
    kind = kind or properties.kind
    if kind in ("spd", "semidefinite"):
        pairs = _definite(properties, backend, ranks, packages, thorough)
    elif kind == "indefinite":
        pairs = _indefinite(properties, backend, ranks, packages, thorough)
    else:
        pairs = _general(properties, backend, ranks, packages, thorough)
    if kind in ("semidefinite", "singular"):
        pairs = [(label, options + " -ksp_constant_null_space") for label, options in pairs]
    else:
        pairs += _direct(properties, backend, ranks, packages)
    return [Candidate(label, options, backend) for label, options in pairs]


def sent(on_gpu, on_host, host_too):
    """Candidates where PETSc has no CUDA: on the GPU those solvers and preconditioners that finepc has there, to which matrices
    of the host are sent; on the host PETSc's own, or with `host_too` all."""
    def there(candidate):
        words = candidate.options.split()
        solver, pc = (words[words.index(key) + 1] if key in words else "" for key in ("-ksp_type", "-pc_type"))
        return solver in ("cgfused", "gmresfused", "rrbcg") and (pc in FINEPC_TYPES or pc in ("none", "jacobi", "pbjacobi"))

    return ([dataclasses.replace(candidate, sent=True) for candidate in on_gpu if there(candidate)] +
            [candidate for candidate in on_host if host_too or candidate.baseline])


def _direct(properties, backend, ranks, packages):
    """Direct solvers. Richardson's method solves once if the residual is small enough then, and refines the solution if not."""
    symmetric = properties.symmetric and not properties.one_sided  # a Cholesky factor is one of the upper triangle
    factor = "cholesky" if symmetric else "lu"
    chosen_packages = [("petsc", factor)] if ranks == 1 else []
    if "cudss" in packages and backend == "cuda" and ranks == 1:
        chosen_packages.append(("cudss", factor))
    if "mumps" in packages:
        chosen_packages.append(("mumps", factor))
    if "superlu_dist" in packages:
        chosen_packages.append(("superlu_dist", "lu"))
    return [(f"{factor} {package}", f"-ksp_type richardson -pc_type {factor} -pc_factor_mat_solver_type {package}")
            for package, factor in chosen_packages]


def _multigrid(packages, backend, symmetric):
    """Multigrid methods of other packages; PFLARE's is for matrices that are not symmetric"""
    types = [("hypre", "-pc_type hypre")] if "hypre" in packages else []
    if "amgx" in packages and backend == "cuda":
        types.append(("amgx", "-pc_type amgx"))
    if "air" in packages and not symmetric:
        types.append(("air", "-pc_type air"))
    return types


def _block(properties):
    return properties.block_size > 1


def _of_rules(fit, *names):
    """Labels and options of those candidates of the library's rules that fit"""
    return [(name.replace("_", " "), fit[name]) for name in names if name in fit]


def _definite(properties, backend, ranks, packages, thorough):
    fused = backend == "cuda"
    # One unknown a point, and couplings of the sign that elliptic problems have
    elliptic = not _block(properties) and properties.nonpositive_offdiagonal >= 0.6
    # On a stencil cmatch stands beside rrb, which is the faster one unless couplings differ much with the direction
    elliptic = elliptic or bool(properties.stencil)
    fit = rules.fitting(rules.words_of(properties, backend, ranks, "spd", free=False))
    types = _of_rules(fit, "jacobi", "pbjacobi", "icc", "bjacobi_icc", "gamg")
    types += _multigrid(packages, backend, True)
    pairs = [(f"cg {label}", f"-ksp_type cg {options}") for label, options in types]
    ours = _of_rules(fit, "afsai", "afsai_strong", "sfsai", "sfsai_power_1")
    if thorough:
        ours += [
            ("afsai 20", "-pc_type afsai -pc_afsai_max_steps 20 -pc_afsai_tolerance 1e-4"),
            ("afsai 60", "-pc_type afsai -pc_afsai_max_steps 60 -pc_afsai_tolerance 1e-4"),
            ("afsai 1x3", "-pc_type afsai -pc_afsai_max_steps 1 -pc_afsai_step_size 3"),
            ("afsai 10 full", "-pc_type afsai -pc_afsai_max_steps 10 -pc_afsai_tolerance 0"),
            ("afsai 30", "-pc_type afsai -pc_afsai_max_steps 30"),
            ("sfsai power 2 filtered", "-pc_type sfsai -pc_sfsai_power 2 -pc_sfsai_prefilter 0.05"),
            ("sfsai power 3 filtered", "-pc_type sfsai -pc_sfsai_power 3 -pc_sfsai_prefilter 0.1"),
            ("sfsai power 4", "-pc_type sfsai -pc_sfsai_power 4"),
            ("sfsai power 6 filtered", "-pc_type sfsai -pc_sfsai_power 6 -pc_sfsai_prefilter 0.05 -pc_sfsai_postfilter 0.05"),
        ]
    # With blocks it may be an elastic solid, on which cmatch is ahead on a GPU
    if elliptic or thorough or (fused and _block(properties)):
        ours += _of_rules(fit, "cmatch")
    if thorough:
        ours += [
            ("cmatch mis2", "-pc_type cmatch -pc_cmatch_coarsening mis2"),
            ("cmatch chebyshev 3", "-pc_type cmatch -pc_cmatch_smoother chebyshev -pc_cmatch_degree 3"),
        ]
    for smoother in ("afsai", "sfsai"):  # with fewer steps the bound of the spectrum may be too small
        ours.append((f"gamg {smoother}", f"-pc_type gamg -mg_levels_pc_type {smoother} -mg_levels_ksp_chebyshev_esteig_steps 40"))
    ours += _of_rules(fit, "rrb")
    # On a GPU every one of them with cgfused, too: a type that is compared with PETSc's cg alone would look slower than it is
    if fused:
        pairs += [(f"cgfused {label}", f"-ksp_type cgfused {options}") for label, options in types + ours]
    else:
        pairs += [(f"cg {label}", f"-ksp_type cg {options}") for label, options in ours]
    if properties.stencil == "5-point" and ranks == 1 and properties.kind == "spd":
        pairs.append(("rrbcg rrb", "-ksp_type rrbcg -pc_type rrb"))
    return pairs


def _triangular(properties, ranks, solver):
    """Incomplete LU factors of PETSc's, of blocks where there are any"""
    block = "-mat_type block " if _block(properties) else ""
    if ranks == 1:
        return f"{solver} ilu", f"{block}{_krylov(solver)} -pc_type ilu"
    return f"{solver} bjacobi ilu", f"{block}{_krylov(solver)} -pc_type bjacobi -sub_pc_type ilu"


def _krylov(solver):
    return f"-ksp_type {solver} -ksp_pc_side right"


def _general(properties, backend, ranks, packages, thorough):
    """What fits matrices that are neither symmetric nor definite"""
    gmres, bcgs = _krylov("gmres"), _krylov("bcgs")
    pairs = [("gmres jacobi", f"{gmres} -pc_type jacobi"), ("bcgs jacobi", f"{bcgs} -pc_type jacobi")]
    if _block(properties):
        pairs.append(("gmres pbjacobi", f"{gmres} -pc_type pbjacobi"))
    pairs += [_triangular(properties, ranks, "gmres"), _triangular(properties, ranks, "bcgs")]
    pairs.append(("gmres gamg", f"{gmres} -pc_type gamg"))
    pairs += [(f"gmres {label}", f"{gmres} {options}") for label, options in _multigrid(packages, backend, False)]
    fit = rules.fitting(rules.words_of(properties, backend, ranks, "nonsymmetric", free=True))
    bisai = _of_rules(fit, "bisai", "bisai_power_2") + [
        ("bisai power 3", "-pc_type bisai -pc_bisai_power 3"),
        ("bisai relaxed", "-pc_type bisai -pc_bisai_power 2 -pc_bisai_sweeps 2"),
        ("bisai fill 1", "-pc_type bisai -pc_bisai_power 2 -pc_bisai_factor_levels 1"),
    ]
    if thorough:
        bisai += [("bisai fill 2", "-pc_type bisai -pc_bisai_power 3 -pc_bisai_factor_levels 2"),
                  ("bisai columns", "-pc_type bisai -pc_bisai_side columns -pc_bisai_power 2")]
    pairs += [(f"gmres {label}", f"-mat_type block {gmres} {options}") for label, options in bisai]
    if backend == "cuda":
        fused = _krylov("gmresfused")
        pairs.append(("gmresfused jacobi", f"{fused} -pc_type jacobi"))
        pairs += [(f"gmresfused {label}", f"-mat_type block {fused} {options}")
                  for label, options in (bisai if thorough else bisai[:3])]
        if thorough:
            sweeps = "-pc_type bisai -pc_bisai_power 3 -pc_bisai_factor_sweeps 3"  # with the factor of finepc's, on a GPU alone
            single = f"{fused} -ksp_gmresfused_basis_precision single"
            pairs += [("gmresfused bisai power 3 sweeps", f"-mat_type block {fused} {sweeps}"),
                      ("gmresfused single bisai power 3", f"-mat_type block {single} {bisai[2][1]}"),
                      ("gmresfused single bisai power 3 sweeps", f"-mat_type block {single} {sweeps}")]
    pairs.append(("bcgs bisai power 2", f"-mat_type block {bcgs} {bisai[1][1]}"))
    return pairs


def _indefinite(properties, backend, ranks, packages, thorough):
    # The short recurrence of minres needs a positive definite preconditioner, and tests the norm that this one makes.
    minres = "-ksp_type minres -ksp_norm_type preconditioned"
    pairs = [("minres none", f"{minres} -pc_type none"), ("minres jacobi", f"{minres} -pc_type jacobi -pc_jacobi_abs")]
    return pairs + _general(properties, backend, ranks, packages, thorough)


def given(texts, backends):
    """Candidates of a user's own, of texts "label: options" """
    found = []
    for text in texts:
        label, colon, options = (part.strip() for part in text.partition(":"))
        if not (label and colon and options.startswith("-")):
            raise ValueError(f"\"{text}\" is not of the form \"label: -option value ...\"")
        found += [Candidate(label, options, backend) for backend in backends]
    return found


def afsai_steps(options):
    """The steps of afsai as the preconditioner, or None of anything else"""
    words = options.split()
    if not _has(words, "-pc_type", "afsai"):
        return None
    return int(words[words.index("-pc_afsai_max_steps") + 1]) if "-pc_afsai_max_steps" in words else AFSAI_STEPS


def _has(words, key, value):
    return (key, value) in zip(words, words[1:])


def chosen(every, only):
    """Those of which a word of `only` is the label, or an option's value such as a type; an unknown word is returned. Beside
    afsai with some steps goes afsai with others: few of them can be far worse than jacobi where more are better."""
    wanted = [word.strip() for word in only if word.strip()]
    unknown = [word for word in wanted if not any(_matches(candidate, word) for candidate in every)]
    found = [candidate for candidate in every if any(_matches(candidate, word) for word in wanted)]
    adaptive = {candidate.backend for candidate in found if afsai_steps(candidate.options) is not None}
    return [candidate for candidate in every
            if candidate in found or (candidate.backend in adaptive and afsai_steps(candidate.options) is not None)], unknown


def _matches(candidate, word):
    return word == candidate.label or word in candidate.options.split()


def as_program_options(candidate, properties, rtol):
    """The candidate as lines of an options file for any program of PETSc's, which sets its matrix and solver from options"""
    words, lines = candidate.options.split(), [f"-mat_type {candidate.matrix_type}"]
    if _block(properties):
        lines.append(f"-mat_block_size {properties.block_size}")
    if candidate.backend == "cuda":
        lines.append("-finepc_backend device" if candidate.sent else "-vec_type cuda")
    keys = [k for k, word in enumerate(words) if word.startswith("-")] + [len(words)]
    options = [" ".join(words[begin:end]) for begin, end in zip(keys, keys[1:])]
    lines += [option for option in options if not option.startswith("-mat_type ")]
    if "-ksp_norm_type" not in words:
        lines.append("-ksp_norm_type unpreconditioned")
    lines.append(f"-ksp_rtol {rtol * candidate.bound:.3g}")
    return lines
