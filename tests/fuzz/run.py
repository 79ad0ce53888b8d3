"""Fuzzing of one target in processes of its own, and the figures of the run."""

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Run", "fuzz"]

# One thread each, so that the time of a run is the time of its processor.
_ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
_STARTUP_SECONDS = 300
# The memory of the fuzzer itself grows with its executions.  A new process continues with the inputs of the last one.
_PROCESS_SECONDS = 100
# A folder in memory, if there is one, because most targets write each input to a file.
_SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
_TESTS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Run:
    """Figures of a run; `finding` is the last line of an error, "" for none, and `output` is the whole log."""

    executions: int
    seconds: float
    coverage: int
    finding: str
    output: str


def fuzz(module: str, seconds: int, working: Path, known: Path, process_seconds: int = _PROCESS_SECONDS) -> Run:
    """Fuzz the target of a module; inputs with new coverage go to `working`, and inputs with a finding to `known`."""
    runs: list[Run] = []
    for start in range(0, seconds, process_seconds):
        runs.append(_fuzz_once(module, min(process_seconds, seconds - start), working, known))
        if runs[-1].finding:
            break
    return Run(
        executions=sum(run.executions for run in runs),
        seconds=sum(run.seconds for run in runs),
        coverage=max(run.coverage for run in runs),
        finding=runs[-1].finding,
        output="".join(run.output for run in runs),
    )


def _fuzz_once(module: str, seconds: int, working: Path, known: Path) -> Run:
    """Fuzz a target in one process."""
    working.mkdir(parents=True, exist_ok=True)
    known.mkdir(parents=True, exist_ok=True)
    flags = [f"-max_total_time={seconds}", "-print_final_stats=1", f"-artifact_prefix={known}/", "-detect_leaks=0"]
    command = [sys.executable, "-P", "-m", "fuzz.worker", module, *flags, str(working), str(known)]
    path = os.pathsep.join([str(_TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    # libFuzzer ends its process without cleaning up.
    with tempfile.TemporaryDirectory(dir=_SCRATCH) as scratch:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=seconds + _STARTUP_SECONDS,
            env=os.environ | _ENVIRONMENT | {"PYTHONPATH": path, "TMPDIR": scratch},
        )  # fmt: skip
    output = done.stdout + done.stderr
    counts = [int(n) for n in re.findall(r"^#(\d+)\s", output, re.M)]
    counts += [int(n) for n in re.findall(r"number_of_executed_units: (\d+)", output)]
    times = re.findall(r"Done \d+ runs in (\d+) second", output)
    return Run(
        executions=max(counts, default=0),
        seconds=float(times[-1]) if times else float(seconds),
        coverage=max((int(n) for n in re.findall(r"cov: (\d+)", output)), default=0),
        finding=_finding(done.returncode, output),
        output=output,
    )


def _finding(status: int, output: str) -> str:
    if status == 0:
        return ""
    # libFuzzer names a hang, a crash or the use of memory; a Python error precedes a crash.
    errors = re.findall(r"^.*fuzz\.target\.Finding: .*$|^.*ERROR: libFuzzer: .*$", output, re.M)
    lines = output.strip().splitlines() or ["no output"]
    return f"status {status}: {errors[0] if errors else lines[-1]}"
