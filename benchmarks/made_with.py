"""What a report of finepc_bench was made with, for the heads of tables."""


def machine(report):
    """The device and its driver, if it has one."""
    return report["device"] + (f", driver {report['driver']}" if report["driver"] else "")


def made_with(report):
    """The machine, PETSc and the commit."""
    return f"{machine(report)}, PETSc {report['petsc']}, commit {report['commit']}"
