"""Looks at a matrix: what decides which preconditioners and solvers fit it."""
import dataclasses

import numpy
import scipy.sparse

SYMMETRIC = 1e-10  # relative difference of a matrix from its transpose: the numbers in files may be rounded
LANCZOS_STEPS = 40
BASIS_ENTRIES = 200_000_000  # of Lanczos's basis at most, but for ten vectors: matrices of more than 5 million rows get fewer steps
LARGEST_BLOCK = 8
SAMPLE_ENTRIES = 5_000_000  # block sizes are guessed from so many entries at most


@dataclasses.dataclass
class Properties:
    rows: int
    entries: int
    longest_row: int
    pattern_symmetric: bool
    asymmetry: float  # ||A - A^T|| / ||A||, Frobenius norms
    one_sided: int  # entries whose mirror image is not there
    boundary_rows: bool  # all of these are in columns of rows with nothing but a diagonal entry
    symmetric: bool  # in its values, but for such rows
    missing_diagonal: int
    nonpositive_diagonal: int
    nonpositive_offdiagonal: float  # the share of entries beside the diagonal that are at most 0
    dominant: float  # the share of rows whose diagonal entry is at least the sum of the others' absolute values
    block_size: int
    stencil: str  # "5-point", "9-point", or empty
    grid: tuple
    constants_in_null_space: bool
    smallest_ritz: float  # of |D|^-1/2 A |D|^-1/2 after a few steps of Lanczos's method; NaN where A is not symmetric
    largest_ritz: float
    kind: str  # spd, semidefinite, indefinite, nonsymmetric, singular

    def lines(self):
        """What was found, in words"""
        yield f"{self.rows} rows, {self.entries} entries, {self.entries / self.rows:.1f} a row, at most {self.longest_row}"
        if self.symmetric and self.one_sided:
            yield (f"symmetric but for {self.one_sided} one-sided couplings to rows with nothing but a diagonal entry, which "
                   "boundary conditions leave")
        elif self.symmetric:
            yield "symmetric in pattern and value"
        else:
            pattern = "" if not self.one_sided else f", and {self.one_sided} couplings are one-sided"
            yield f"not symmetric: it differs from its transpose by {self.asymmetry:.1e} of its norm{pattern}"
        if self.missing_diagonal:
            yield f"{self.missing_diagonal} diagonal entries are missing or 0"
        if self.nonpositive_diagonal:
            yield f"{self.nonpositive_diagonal} diagonal entries are not positive"
        if self.symmetric and self.largest_ritz < 0:
            yield "no sign of a positive eigenvalue: multiplied by -1, the system is one for positive definite matrices"
        yield (f"{100 * self.nonpositive_offdiagonal:.0f} % of the entries beside the diagonal are at most 0, and "
               f"{100 * self.dominant:.0f} % of the rows are dominated by their diagonal entries")
        if self.block_size > 1:
            yield f"blocks: it looks as if there were {self.block_size} unknowns a point"
        if self.stencil:
            yield f"a {self.stencil} stencil on a grid of {self.grid[0]} by {self.grid[1]} points"
        yield {
            "spd": "taken as positive definite: some steps of Lanczos's method on the scaled matrix found no eigenvalue below "
                   f"{self.smallest_ritz:.1e}",
            "semidefinite": "singular: constants are in its null space, and no sign of a negative eigenvalue was found",
            "indefinite": f"indefinite: the scaled matrix has eigenvalues at or below {self.smallest_ritz:.1e} and at or above "
                          f"{self.largest_ritz:.1e}",
            "nonsymmetric": "of a matrix that is not symmetric, definiteness was not looked at",
            "singular": "singular, and not symmetric: constants are in its null space",
        }[self.kind]


def analyse(A):
    """The properties of a CSR matrix with sorted indices"""
    n = A.shape[0]
    rows = numpy.repeat(numpy.arange(n), numpy.diff(A.indptr))
    diagonal = A.diagonal()
    transpose = A.T.tocsr()
    transpose.sort_indices()
    asymmetry = _norm(A - transpose) / _norm(A)
    one_sided, symmetric_part, boundary = _one_sided(A, transpose, rows)
    boundary_only = one_sided > 0 and boundary and _norm(symmetric_part - symmetric_part.T) <= SYMMETRIC * _norm(A)
    symmetric = asymmetry <= SYMMETRIC or boundary_only
    beside = A.indices != rows
    sums = numpy.bincount(rows, weights=numpy.where(beside, abs(A.data), 0), minlength=n)
    residual = abs(A @ numpy.ones(n))
    constants = bool((residual <= 1e-10 * (sums + abs(diagonal))).all())
    smallest = largest = float("nan")
    if symmetric:
        smallest, largest = lanczos(symmetric_part if boundary_only else A, diagonal)
    stencil, grid = _stencil(A, rows)
    return Properties(
        rows=n, entries=A.nnz, longest_row=int(numpy.diff(A.indptr).max()),
        pattern_symmetric=one_sided == 0, asymmetry=asymmetry, one_sided=one_sided, boundary_rows=boundary_only,
        symmetric=symmetric, missing_diagonal=int((diagonal == 0).sum()), nonpositive_diagonal=int((diagonal <= 0).sum()),
        nonpositive_offdiagonal=float((A.data[beside] <= 0).mean()) if beside.any() else 1.0,
        dominant=float((diagonal >= sums * (1 - 1e-12)).mean()), block_size=_block_size(A, rows), stencil=stencil, grid=grid,
        constants_in_null_space=constants, smallest_ritz=smallest, largest_ritz=largest,
        kind=_kind(symmetric, constants, diagonal, smallest))


def _norm(A):
    return float(numpy.sqrt((A.data**2).sum()))


def _kind(symmetric, constants, diagonal, smallest):
    if not symmetric:
        return "singular" if constants else "nonsymmetric"
    if (diagonal <= 0).any() or smallest < -1e-10:  # rounding may leave a zero eigenvalue below 0
        return "indefinite"
    return "semidefinite" if constants else "spd"


def _one_sided(A, transpose, rows):
    """(how many entries have no mirror image, A without these, whether all of them are in columns of rows with a diagonal entry
    alone)"""
    pattern, mirrored = (scipy.sparse.csr_matrix((B.data != 0, B.indices, B.indptr), shape=A.shape) for B in (A, transpose))
    both = pattern.multiply(mirrored).tocsr()
    count = int((A.data != 0).sum()) - both.nnz
    if not count:
        return 0, A, False
    kept = A.multiply(both).tocsr()
    kept.sort_indices()
    lonely = (A - kept).tocoo()
    lonely.eliminate_zeros()
    lengths = numpy.bincount(rows[A.data != 0], minlength=A.shape[0])
    alone = (lengths == 1) & (A.diagonal() != 0)
    return count, kept, bool(alone[lonely.col].all())


def lanczos(A, diagonal, steps=LANCZOS_STEPS):
    """The smallest and the largest Ritz value of |D|^-1/2 A |D|^-1/2 after some steps, the basis kept orthogonal. Ritz values lie
    between eigenvalues: a negative one proves that A is not positive definite, positive ones prove nothing."""
    n = A.shape[0]
    scale = 1 / numpy.sqrt(numpy.where(diagonal == 0, 1, abs(diagonal)))
    steps = min(steps, n, max(10, BASIS_ENTRIES // n))
    basis = numpy.empty((steps, n))
    alphas, betas = [], []
    v = numpy.random.default_rng(0).standard_normal(n)
    v /= numpy.linalg.norm(v)
    for k in range(steps):
        basis[k] = v
        w = scale * (A @ (scale * v))
        alphas.append(v @ w)
        for _ in range(2):
            w -= basis[: k + 1].T @ (basis[: k + 1] @ w)
        beta = numpy.linalg.norm(w)
        if beta <= 1e-12 * abs(alphas[0]) or k + 1 == steps:
            break
        betas.append(beta)
        v = w / beta
    values = numpy.linalg.eigvalsh(numpy.diag(alphas) + numpy.diag(betas, 1) + numpy.diag(betas, -1))
    return float(values[0]), float(values[-1])


def _block_size(A, rows):
    """The largest block size up to 8 whose blocks are nearly as full as those of any other, or of fields that each couple to
    themselves at other points; 1 where there is none"""
    n, stop = A.shape[0], min(A.nnz, SAMPLE_ENTRIES)
    rows, columns = rows[:stop].astype(numpy.int64), A.indices[:stop]
    fills, fields = {}, []
    for size in range(2, LARGEST_BLOCK + 1):
        if n % size or n == size:
            continue
        fills[size] = stop / (numpy.unique(rows // size * n + columns // size).size * size * size)
        inside = rows // size == columns // size
        full = inside.sum() >= 0.9 * size * (rows[-1] + 1)
        if full and not ((rows - columns)[~inside] % size).any():
            fields.append(size)
    fullest = max(fills.values(), default=0)
    if fullest >= 0.7:
        return max(size for size, fill in fills.items() if fill >= 0.9 * fullest)
    return max(fields, default=1)


def _stencil(A, rows):
    """Whether all couplings are those of a 5- or 9-point stencil on a grid in natural ordering, and its points in x and y"""
    present = A.data != 0
    offsets = numpy.unique((A.indices.astype(numpy.int64) - rows)[present])
    distances = sorted(set(abs(offsets[offsets != 0]).tolist()))
    if len(distances) == 2 and distances[0] == 1 and distances[1] > 2:
        name, nx = "5-point", distances[1]
    elif len(distances) == 4 and distances == [1, distances[2] - 1, distances[2], distances[2] + 1]:
        name, nx = "9-point", distances[2]
    else:
        return "", ()
    if A.shape[0] % nx:
        return "", ()
    # no coupling runs from the end of a line to the begin of the next
    columns, ends = A.indices % nx, rows % nx
    if (abs(columns - ends)[present] > 1).any():
        return "", ()
    return name, (nx, A.shape[0] // nx)
