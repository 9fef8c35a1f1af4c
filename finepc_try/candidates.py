"""Which preconditioners and solvers are tried on a matrix with given properties, PETSc's own beside finepc's."""
import dataclasses

AFSAI_STEPS = 20  # as many as a row takes by default
FINEPC_TYPES = ("afsai", "sfsai", "bisai", "rrb", "cmatch", "cgfused", "gmresfused", "rrbcg", "baijcuda")


@dataclasses.dataclass
class Candidate:
    label: str
    options: str  # as the benchmark program takes them: -mat_type block is BAIJ in the memory of the backend
    backend: str  # host or cuda
    bound: float = 1.0  # the tolerance of the solver over that of the true residual

    @property
    def matrix_type(self):
        cuda = self.backend == "cuda"
        if "-mat_type block" in self.options:
            return "baijcuda" if cuda else "baij"
        return "aijcusparse" if cuda else "aij"

    @property
    def baseline(self):
        """Whether it is of PETSc alone, the type of its matrix, too; whatever else needs the library"""
        return not any(word in FINEPC_TYPES for word in (self.matrix_type, *self.options.split()))


def candidates(properties, backend, ranks, kind=None):
    """All candidates for a matrix, on one backend; `kind` instead of that of the properties"""
    kind = kind or properties.kind
    if kind in ("spd", "semidefinite"):
        pairs = _definite(properties, backend, ranks)
    elif kind == "indefinite":
        pairs = _indefinite(properties, backend, ranks)
    else:
        pairs = _nonsymmetric(properties, backend, ranks)
    if kind in ("semidefinite", "singular"):
        pairs = [(label, options + " -ksp_constant_null_space") for label, options in pairs]
    return [Candidate(label, options, backend) for label, options in pairs]


def _block(properties):
    return properties.block_size > 1


def _definite(properties, backend, ranks):
    fused = backend == "cuda"
    # One unknown a point, and couplings of the sign that elliptic problems have
    elliptic = not _block(properties) and properties.nonpositive_offdiagonal >= 0.6
    # On a stencil cmatch stands beside rrb, which is the faster one unless couplings differ much with the direction
    elliptic = elliptic or bool(properties.stencil)
    pairs = [("cg jacobi", "-ksp_type cg -pc_type jacobi")]
    if _block(properties):
        pairs.append(("cg pbjacobi", "-ksp_type cg -pc_type pbjacobi"))
    if ranks == 1:
        pairs.append(("cg icc", "-ksp_type cg -pc_type icc"))
    else:
        pairs.append(("cg bjacobi icc", "-ksp_type cg -pc_type bjacobi -sub_pc_type icc"))
    pairs.append(("cg gamg", "-ksp_type cg -pc_type gamg"))
    types = [
        ("afsai", "-pc_type afsai"),
        ("afsai strong", "-pc_type afsai -pc_afsai_max_steps 40 -pc_afsai_tolerance 1e-4"),
        ("sfsai", "-pc_type sfsai"),
        ("sfsai power 1", "-pc_type sfsai -pc_sfsai_power 1"),
    ]
    if elliptic:
        types.append(("cmatch", "-pc_type cmatch"))
    if fused:
        pairs.append(("cgfused jacobi", "-ksp_type cgfused -pc_type jacobi"))
    cg = "cgfused" if fused else "cg"
    pairs += [(f"{cg} {label}", f"-ksp_type {cg} {options}") for label, options in types]
    pairs.append(("cg gamg afsai", "-ksp_type cg -pc_type gamg -mg_levels_pc_type afsai "
                  "-mg_levels_ksp_chebyshev_esteig_steps 40"))  # with fewer the bound of the spectrum may be too small
    if properties.stencil:
        pairs.append(("cg rrb", "-ksp_type cg -pc_type rrb"))
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


def _general(properties, backend, ranks):
    """What fits matrices that are neither symmetric nor definite"""
    gmres, bcgs = _krylov("gmres"), _krylov("bcgs")
    pairs = [("gmres jacobi", f"{gmres} -pc_type jacobi"), ("bcgs jacobi", f"{bcgs} -pc_type jacobi")]
    if _block(properties):
        pairs.append(("gmres pbjacobi", f"{gmres} -pc_type pbjacobi"))
    pairs += [_triangular(properties, ranks, "gmres"), _triangular(properties, ranks, "bcgs")]
    pairs.append(("gmres gamg", f"{gmres} -pc_type gamg"))
    bisai = [
        ("bisai", "-pc_type bisai"),
        ("bisai power 2", "-pc_type bisai -pc_bisai_power 2"),
        ("bisai power 3", "-pc_type bisai -pc_bisai_power 3"),
        ("bisai relaxed", "-pc_type bisai -pc_bisai_power 2 -pc_bisai_sweeps 2"),
        ("bisai fill 1", "-pc_type bisai -pc_bisai_power 2 -pc_bisai_factor_levels 1"),
    ]
    pairs += [(f"gmres {label}", f"-mat_type block {gmres} {options}") for label, options in bisai]
    if backend == "cuda":
        fused = _krylov("gmresfused")
        pairs.append(("gmresfused jacobi", f"{fused} -pc_type jacobi"))
        pairs += [(f"gmresfused {label}", f"-mat_type block {fused} {options}") for label, options in bisai[:3]]
    pairs.append(("bcgs bisai power 2", f"-mat_type block {bcgs} {bisai[1][1]}"))
    return pairs


def _indefinite(properties, backend, ranks):
    # The short recurrence of minres needs a positive definite preconditioner, and tests the norm that this one makes.
    minres = "-ksp_type minres -ksp_norm_type preconditioned"
    pairs = [("minres none", f"{minres} -pc_type none"), ("minres jacobi", f"{minres} -pc_type jacobi -pc_jacobi_abs")]
    return pairs + _general(properties, backend, ranks)


def _nonsymmetric(properties, backend, ranks):
    return _general(properties, backend, ranks)


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
        lines.append("-vec_type cuda")
    keys = [k for k, word in enumerate(words) if word.startswith("-")] + [len(words)]
    options = [" ".join(words[begin:end]) for begin, end in zip(keys, keys[1:])]
    lines += [option for option in options if not option.startswith("-mat_type ")]
    if "-ksp_norm_type" not in words:
        lines.append("-ksp_norm_type unpreconditioned")
    lines.append(f"-ksp_rtol {rtol * candidate.bound:.3g}")
    return lines
