"""Runs the benchmark program on one candidate at a time, each in a process of its own."""
import dataclasses
import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile

from .matrix import TryError

WARM_RUNS = 2
PATIENCE = 50  # times that of the fastest so far: a candidate that takes longer is ended, but not before SHORTEST
SHORTEST = 5.0  # seconds
GRACE = 10.0  # seconds beyond the time limit until a process is killed, for loading and for what cannot be interrupted
OF_A_RANK = ("PMIX_", "PMI_", "HYDRA_", "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "OMPI_MCA_orte_", "OMPI_MCA_ess", "OMPI_MCA_pmix")
OUR_FOLDER = os.path.dirname(os.path.abspath(__file__))


@dataclasses.dataclass
class Row:
    """What came of one candidate; times in seconds. Those of set-up and solve are of the fastest of the warm runs, where there is
    one, and otherwise of the first use in a process."""

    label: str
    backend: str
    options: str
    status: str  # ok, missed, diverged, failed, time limit, killed
    note: str = ""
    setup_s: float = None
    solve_s: float = None
    total_s: float = None
    first_s: float = None  # set-up and solve of the first use
    again_s: float = None  # another solve with the same set-up
    refill_s: float = None  # set-up with new values on the same nonzeros
    iterations: int = None
    memory_bytes: float = None
    true_residual: float = None
    warm_runs: int = 0
    density: float = None
    baseline: bool = False
    spread: float = None  # by how much the totals of two runs differ, relative to the smaller one
    view: list = dataclasses.field(default_factory=list)
    history: list = dataclasses.field(default_factory=list)
    history_stride: int = 1

    @property
    def ok(self):
        return self.status == "ok"


# ----------------------------------------- the program ----------------------------------------


def find_bench(given=None):
    """The benchmark program: one that is named, one that is installed beside this package, or one of a build folder"""
    named = given or os.environ.get("FINEPC_BENCH")
    if named:
        if shutil.which(named):
            return shutil.which(named)
        raise TryError(f"There is no program {named}")
    prefix = os.path.join(OUR_FOLDER, *[os.pardir] * 3)  # of <prefix>/share/finepc/finepc_try
    source = os.path.join(OUR_FOLDER, os.pardir)
    places = [os.path.join(OUR_FOLDER, "bin"), os.path.join(prefix, "bin"),
              *(os.path.join(source, folder, "benchmarks") for folder in ("build", "build/host"))]
    for place in places:
        if os.access(os.path.join(place, "finepc_bench"), os.X_OK):
            return os.path.normpath(os.path.join(place, "finepc_bench"))
    found = shutil.which("finepc_bench")
    if not found:
        raise TryError("The program finepc_bench, which finepc installs beside this one, is not there; "
                       "FINEPC_BENCH=/path/finepc_bench names another")
    return found


def gpu_name():
    """The first GPU that nvidia-smi lists, or empty"""
    smi = shutil.which("nvidia-smi")
    if not smi:
        return ""
    try:
        lines = subprocess.run([smi, "-L"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    names = [line for line in lines.stdout.splitlines() if line.startswith("GPU ")]
    return names[0].split(":", 1)[1].split("(")[0].strip() if names and lines.returncode == 0 else ""


class Runner:
    """Runs candidates on one file"""

    def __init__(self, bench, ranks=1, rtol=1e-8, time_limit=60.0, block_size=1, max_it=20000, coordinates=None):
        self.bench, self.ranks, self.rtol, self.time_limit, self.block_size = bench, ranks, rtol, time_limit, block_size
        self.max_it, self.coordinates = max_it, coordinates
        self._packages = {}
        self.sends = False  # PETSc has no CUDA, and finepc sends matrices of the host to the GPU
        self.fastest = float("inf")  # the least first use of a candidate that reached the tolerance
        self.device, self.petsc, self.commit = {}, "", ""
        self.environment = _environment(ranks)
        if ranks > 1:
            self.mpiexec = os.environ.get("FINEPC_MPIEXEC") or shutil.which("mpiexec")
            if not self.mpiexec:
                raise TryError(f"{ranks} ranks need MPI's program mpiexec, which is not there")

    def command(self, backend, arguments):
        command = [self.bench, "-backend", backend, *arguments]
        return [self.mpiexec, "-n", str(self.ranks), *command] if self.ranks > 1 else command

    def has_gpu(self):
        """(whether the program can use a GPU, why not)"""
        code, said, late = self._check("cuda")
        if code == 0:
            return True, ""
        return False, "no answer within two minutes" if late else _reason(said, code)

    def packages(self, backend):
        """Those of candidates.PACKAGES that the program can use there"""
        if backend not in self._packages:
            self._check(backend)
        return self._packages[backend]

    def _check(self, backend):
        result = self._process(self.command(backend, ["-check", "-systems", "poisson2d5:4"]), 120.0, host=False)
        listed = [line.split()[1:] for line in result[1].splitlines() if line.startswith("packages:")]
        self._packages[backend] = listed[0] if listed else []
        if backend == "cuda":
            self.sends = "matrices: sent to the GPU" in result[1]
        return result

    def run(self, candidate, path):
        """The candidate's row. Where the solver ends before the true residual is small enough, which norms of preconditioned
        residuals do, it is run again with a smaller tolerance."""
        row = self._repeated(candidate, path)
        if row.ok and row.first_s:
            self.fastest = min(self.fastest, row.first_s)
        return row

    def limit(self):
        return min(self.time_limit, max(SHORTEST, PATIENCE * self.fastest))

    def _repeated(self, candidate, path):
        row = self._run(candidate, path)
        if row.status != "missed" or not row.true_residual < 1:
            return row
        bound = 0.3 * self.rtol / row.true_residual
        if self.rtol * bound < 1e-15:
            return row
        first, candidate.bound = candidate.bound, bound
        again = self._run(candidate, path)
        if again.ok:
            again.note = _joined(again.note, f"-ksp_rtol {self.rtol * bound:.1e}")
            return again
        candidate.bound = first
        row.note = _joined(row.note, f"no better with -ksp_rtol {self.rtol * bound:.1e}")
        return row

    def _run(self, candidate, path):
        with tempfile.TemporaryDirectory(prefix="finepc-try-") as work:
            sets, report = os.path.join(work, "set.txt"), os.path.join(work, "result.json")
            limit = self.limit()
            bound = f" -ksp_rtol {self.rtol * candidate.bound:.17g}" if candidate.bound != 1 else ""
            with open(sets, "w", encoding="utf-8") as file:
                file.write(f"candidate: {candidate.options}{bound}\n")
            arguments = ["-systems", f"file:{path}", "-sets", sets, "-json", report, "-true_rtol", f"{self.rtol:.17g}",
                         "-repeats", str(WARM_RUNS), "-applies", "0", "-refill", "-max_it", str(self.max_it),
                         "-set_limit", f"{limit:g}", "-skip_above", f"{limit / 4:g}"]
            if self.block_size > 1:
                arguments += ["-matload_block_size", str(self.block_size)]
            if self.coordinates:
                arguments += ["-coordinates", self.coordinates]
            late_after = limit + GRACE + os.path.getsize(path) / 20e6
            code, said, late = self._process(self.command(candidate.backend, arguments), late_after, candidate.backend == "host")
            result = self._result(report)
        row = Row(candidate.label, candidate.backend, candidate.options, "failed", baseline=candidate.baseline)
        if result:
            _fill(row, result)
        elif late:
            row.status, row.note = "time limit", f"killed after {late_after:.0f} s, in its set-up or without an answer"
        elif code in (-signal.SIGKILL, 128 + signal.SIGKILL):
            row.status, row.note = "killed", "the system killed it, most likely because memory ended"
        else:
            row.note = _reason(said, code)
        return row

    def _result(self, report):
        try:
            with open(report, encoding="utf-8") as file:
                data = json.load(file)
            self.device[data["backend"]] = data["device"] + (f", driver {data['driver']}" if data["driver"] else "")
            self.petsc, self.commit = data["petsc"], data["commit"]
            return data["systems"][0]["results"][0]
        except (OSError, ValueError, LookupError):
            return None

    def _process(self, command, seconds, host):
        """(exit code, output, whether it was killed because it was late) of a process in a group of its own"""
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
                                   errors="replace", env=self.environment, start_new_session=True,
                                   preexec_fn=_host_limits if host else _first_to_go)
        try:
            said, _ = process.communicate(timeout=seconds)
            return process.returncode, said, False
        except subprocess.TimeoutExpired:
            _kill(process)
            return process.returncode, process.communicate()[0], True
        except BaseException:  # an interrupt, too, leaves nothing behind
            _kill(process)
            process.communicate()
            raise


def _environment(ranks):
    # Where mpiexec has started the Python program that calls this, its candidates are no ranks of it.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(OF_A_RANK)}
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")
    environment.setdefault("OMPI_MCA_rmaps_base_oversubscribe", "1")
    environment.setdefault("OMPI_MCA_ess_singleton_isolated", "1")  # no daemon of Open MPI beside each candidate on one rank
    if os.geteuid() == 0:
        environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    options = environment.get("PETSC_OPTIONS", "")
    if "gpu_aware_mpi" not in options and (ranks == 1 or not _mpi_is_gpu_aware()):
        environment["PETSC_OPTIONS"] = f"{options} -use_gpu_aware_mpi 0".strip()
    return environment


def _mpi_is_gpu_aware():
    try:
        said = subprocess.run(["ompi_info", "--parsable", "--all"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "mpi_built_with_cuda_support:value:true" in said


def _first_to_go():
    """When memory ends the system shall kill this process, not the one that started it."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")
    except OSError:
        pass


def _host_limits():
    """Memory beyond what there is now becomes an error of this process. Where there is a GPU, its driver may reserve addresses far
    beyond memory, and there is no limit then; the libraries of CUDA alone map some gigabytes."""
    _first_to_go()
    available = _available_bytes()
    if available and not os.path.exists("/proc/driver/nvidia/version"):
        there = resource.getrlimit(resource.RLIMIT_AS)  # of the shell, for example; the hard one can be lowered but not raised
        soft = min(limit for limit in (available + 4 * 2**30, *there) if limit != resource.RLIM_INFINITY)
        resource.setrlimit(resource.RLIMIT_AS, (soft, there[1]))


def _available_bytes():
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return 0


def _kill(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _joined(*notes):
    return "; ".join(note for note in notes if note)


def _reason(said, code):
    """The line of the output that says best what went wrong"""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("finepc_bench:")]
    errors = [line.split("PETSC ERROR:", 1)[1].strip() for line in lines if "PETSC ERROR:" in line]
    errors = [line for line in errors if line.strip("- ") and not line.startswith(("-----", "See https"))]
    text = (ours or errors or lines or ["it said nothing"])[0]
    if code < 0:
        try:
            text = f"it crashed ({signal.Signals(-code).name}): {text}"
        except ValueError:
            text = f"it crashed (signal {-code}): {text}"
    return text[:300]


def _fill(row, result):
    row.status = result["status"]
    # The table says by itself how many warm runs there were. A refill that takes some iterations more is none of a user's business.
    unsaid = ("first use only", "time limit:", "after a refill:") if row.status == "ok" else ("first use only", "time limit:")
    row.note = _joined(*(note for note in result["note"].split("; ") if not note.startswith(unsaid)))
    row.warm_runs = len(result["warm"])
    for key in ("setup_s", "solve_s", "total_s", "iterations", "true_residual"):
        setattr(row, key, result.get(key))
    if "first" in result:
        row.first_s = result["first"]["setup_s"] + result["first"]["solve_s"]
    again = [run["solve_again_s"] for run in result["warm"] if run["solve_again_s"]]
    row.again_s = min(again) if again else row.solve_s
    row.refill_s = min(result["refill_s"]) if result["refill_s"] else None
    row.memory_bytes = result.get("memory_bytes") or None
    row.density = result["density"] or None
    row.view, row.history, row.history_stride = result["view"], result["history"], result["history_stride"]
    if row.status in ("ok", "missed") and row.true_residual is None:  # JSON has no number for it
        row.status = "failed"
        row.note = _joined(row.note, "its true residual is not a finite number")
    if "total_s" not in result and not row.note:
        row.note = "it ended without an answer"


