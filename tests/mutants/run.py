"""A runner that applies mutants to copies of the installed package, and runs the tests that must kill them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path

from mutants.outcomes import ASSERTED, PASSED
from mutants.patch import Mutant, PatchError, Source, address_of, find_tests

PATIENCE = 120.0  # seconds for the tests of one mutant, beyond 5 times the run time without it


@dataclass(frozen=True)
class Result:
    """The result of one mutant; `survived` is the reason for survival, and empty if all its tests failed."""

    mutant: Mutant
    survived: str
    seconds: float


class Runner:
    """A runner of the tests in `tests` against copies of the package `package`."""

    def __init__(self, package: Path, tests: Path):
        self.source = Source(package)
        self.folder = tests
        self.tests = find_tests(tests)

    def addresses(self, mutant: Mutant) -> list[str]:
        """Return the addresses of the mutant's tests for pytest."""
        if not mutant.killed_by:
            raise PatchError(f"{mutant.name}: no test is named that must kill it")
        return [address_of(self.tests, mutant, name) for name in mutant.killed_by]

    def run(self, mutants: list[Mutant], n_processes: int = 2) -> Iterator[Result]:
        """Run the tests without a mutant, then the tests of each mutant, and yield results in order of completion."""
        broken, named = {}, {}
        for mutant in mutants:
            try:
                self.source.patched(mutant)
                named[mutant.name] = self.addresses(mutant)
            except PatchError as error:
                broken[mutant.name] = str(error)
        distinct = {address for addresses in named.values() for address in addresses}
        by_file = [list(group) for _, group in groupby(sorted(distinct), key=lambda name: name.partition("::")[0])]
        with ThreadPoolExecutor(n_processes) as pool:
            sound = dict(chain.from_iterable(pool.map(self._unmutated, by_file)))
            tasks = []
            for mutant in mutants:
                if mutant.name in broken:
                    yield Result(mutant, f"it does not apply: {broken[mutant.name]}", 0.0)
                    continue
                before = {address: sound[address] for address in named[mutant.name]}
                tasks.append(pool.submit(self._mutated, mutant, before))
            for task in as_completed(tasks):
                yield task.result()

    def _unmutated(self, addresses: list[str]) -> list[tuple[str, tuple[str, float]]]:
        """Return, for each test of one file, the reason why it fails without a mutant, and the seconds of all tests."""
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            outcomes = self._pytest(Path(folder), self.source.folder, addresses, 10 * PATIENCE)
        seconds, results = time.perf_counter() - started, []
        for address in addresses:
            observed = _of_test(address, outcomes)
            bad = observed - {PASSED, "skipped"} or (set() if PASSED in observed else {"it was not run"})
            results.append((address, ("; ".join(sorted(bad)), seconds)))
        return results

    def _mutated(self, mutant: Mutant, before: dict[str, tuple[str, float]]) -> Result:
        started, addresses = time.perf_counter(), list(before)
        survived = next((f"without the mutant {bad}" for bad, _ in before.values() if bad), "")
        if not survived:
            path, text = self.source.patched(mutant)
            with tempfile.TemporaryDirectory() as folder:
                copy = copy_package(self.source.folder, Path(folder), path, text)
                limit = PATIENCE + 5 * sum(seconds for _, seconds in before.values())
                outcomes = self._pytest(Path(folder), copy, addresses, limit)
            survived = "; ".join(filter(None, (_survived(address, outcomes) for address in addresses)))
        return Result(mutant, survived, time.perf_counter() - started)

    def _pytest(self, folder: Path, package: Path, addresses: list[str], limit: float) -> dict[str, str]:
        report = folder / "outcomes.json"
        path = [str(package.parent), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "PYTHONSAFEPATH": "1",  # child processes of a test also import the copy, not the checkout
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # they take longer to load than a test takes
            "MUTANTS_OUTCOMES": str(report),
            "MUTANTS_PACKAGE": str(package),
        }
        command = [
            sys.executable, "-P", "-m", "pytest", "-q", "-p", "mutants.outcomes", "-p", "no:cacheprovider",
            "-m", "slow or not slow", "--rootdir", str(self.folder.parent), *addresses,
        ]  # fmt: skip
        # A new process group lets a timeout end the child processes of a test too.
        with subprocess.Popen(
            command, env=environment, cwd=self.folder.parent, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return dict.fromkeys(addresses, f"broke: not done after {limit:.0f} s")
        return json.loads(report.read_text()) if report.exists() else {}


def _of_test(address: str, outcomes: dict[str, str]) -> set[str]:
    """Return the outcomes of all cases of a test."""
    path, _, name = address.partition("::")
    matching = set()
    for test, outcome in outcomes.items():
        file, _, ran = test.partition("::")
        # Pytest names a file relative to its root; a test that timed out keeps the whole path.
        of_file = Path(path).as_posix().endswith(Path("/", file).as_posix())
        if of_file and (ran in (name, "") or ran.startswith(f"{name}[")):
            matching.add(outcome)
    return matching


def _survived(address: str, outcomes: dict[str, str]) -> str:
    """Return the reason why a test did not kill the mutant; one case that fails by an assertion suffices."""
    matching = _of_test(address, outcomes)
    if ASSERTED in matching:
        return ""
    return f"{address.partition('::')[2]} " + ("; ".join(sorted(matching)) or "was not run")


def copy_package(package: Path, folder: Path, changed: Path, text: str) -> Path:
    """Return a copy of a package with one changed file; unchanged files are symbolic links."""
    copy = folder / package.name
    _link(package, copy, changed.relative_to(package).parts)
    (copy / changed.relative_to(package)).write_text(text, encoding="utf-8")
    return copy


def _link(original: Path, copy: Path, way: tuple[str, ...]) -> None:
    copy.mkdir()
    for entry in original.iterdir():
        if entry.name == "__pycache__":  # the bytecode of unchanged files remains valid
            ignored = shutil.ignore_patterns(f"{way[0].removesuffix('.py')}.*" if len(way) == 1 else "")
            shutil.copytree(entry, copy / entry.name, ignore=ignored)
        elif entry.name != way[0]:
            (copy / entry.name).symlink_to(entry.resolve())
        elif len(way) > 1:
            _link(entry, copy / entry.name, way[1:])
