"""The history of the core suite: earlier revisions are built and measured here, and asv's results are kept.

    python benches revisions run --last 2   # the listed revisions and the last two of main that have no results yet
    python benches revisions publish        # asv's site, and the regressions that it finds

`benches/history/revisions.txt` lists commits and their names.  One worktree goes from the oldest revision to the
newest, so that each build compiles the changed sources alone; a `ccache` on the path is used as well.  Results are kept
in `benches/history/` in asv's format, a folder for each class of machine.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from benches import core_suite
from benches.figures import machine_name

HERE = Path(__file__).resolve().parent
KEPT, WORK = HERE / "history", HERE.parent / ".asv" / "history"  # benchmarks in benches/ are all taken for ours
LISTED, REGRESSIONS = KEPT / "revisions.txt", KEPT / "regressions.json"
SOURCE, WHEELS, INSTALLED, BENCHES = (WORK / name for name in ("source", "wheels", "installed", "benches"))
THRESHOLD = 0.15  # smallest increase of a time that counts as a regression
COLUMNS = ("result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b", "stats_q_25")
COLUMNS += ("stats_q_75", "stats_number", "stats_repeat")  # asv's columns without samples and profiles


def git(*arguments, folder=None):
    """Return the output of a command of git, line by line."""
    command = ["git", "-C", str(folder or HERE), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def listed():
    """Return the name of each listed commit, by its full hash."""
    rows = [line.split(maxsplit=1) for line in LISTED.read_text().splitlines() if line and not line.startswith("#")]
    return {commit: name.strip() for commit, name in rows}


def selected(n_last, branch="main"):
    """Return the listed commits and the last ones of the branch, from the oldest to the newest."""
    wanted = {*listed(), *git("rev-list", "--first-parent", f"--max-count={n_last}", branch)}
    ordered = git("rev-list", "--topo-order", "--reverse", *sorted(wanted))
    return [commit for commit in ordered if commit in wanted]


def run_nicely(command, **options):
    """Run a command of a build, which leaves the processors to other processes."""
    subprocess.run(["nice", "-n", "10", *map(str, command)], check=True, **options)


# ---- builds ----------------------------------------------------------------------------------------------------------


def check_out(commit):
    """Put a revision into the worktree, where only files that differ get a new time of change."""
    if not SOURCE.is_dir():
        git("worktree", "prune")
        git("worktree", "add", "--detach", str(SOURCE), commit)
        return
    before = git("rev-parse", "HEAD", folder=SOURCE)[0]
    git("checkout", "--quiet", "--detach", commit, folder=SOURCE)
    git("clean", "-d", "--force", folder=SOURCE)  # ignored files stay, and `build` is one of them
    # Cython does not compare the directives of two builds.
    if git("diff", "--name-only", before, commit, "--", "setup.py", folder=SOURCE):
        shutil.rmtree(SOURCE / "build", ignore_errors=True)
    remove_former_modules(SOURCE)


def remove_former_modules(source):
    """Remove modules of another revision from a build, since early revisions put all of a build into the wheel."""
    for built in source.glob("build/lib*/fastfedrec"):
        for path in built.rglob("*"):
            module = path.relative_to(built).with_name(path.name.partition(".")[0])
            is_former = path.suffix == ".so" and not (source / module).with_suffix(".pyx").is_file()
            if path.is_file() and (path.suffix != ".so" or is_former):
                path.unlink()


def build(commit):
    """Install a revision alone into a folder."""
    check_out(commit)
    compilers = {}
    if ccache := shutil.which("ccache"):
        compilers = {"CC": f"{ccache} cc", "CXX": f"{ccache} c++", "CCACHE_NOHASHDIR": "1"}
    for folder in (WHEELS, INSTALLED):
        shutil.rmtree(folder, ignore_errors=True)
    # In an environment of its own, Cython would be newer than each source that it has translated.
    pip = [sys.executable, "-m", "pip"]
    run_nicely(
        [*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", WHEELS, SOURCE],
        env=os.environ | compilers,
    )
    run_nicely([*pip, "install", "--quiet", "--no-deps", "--target", INSTALLED, *WHEELS.glob("*.whl")])


# ---- measurements ----------------------------------------------------------------------------------------------------

# Prints the modules of benchmarks that the installed revision cannot import.
IMPORTS = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    try:
        importlib.import_module(f"benches.{name}")
    except Exception:
        print(name)
"""


def copy_benchmarks(environment):
    """Copy today's benchmarks that the installed revision can import, and return the names of their modules."""
    shutil.rmtree(BENCHES, ignore_errors=True)
    for path in HERE.rglob("*.py"):
        (BENCHES / path.relative_to(HERE)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, BENCHES / path.relative_to(HERE))
    files = {".".join(path.relative_to(BENCHES).with_suffix("").parts): path for path in BENCHES.rglob("[!_]*.py")}
    command = [sys.executable, "-P", "-c", IMPORTS, str(WORK), *files]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=WORK)
    for name in done.stdout.split():
        files.pop(name).unlink()
    return files


def configure():
    """Write the configuration of asv for copied benchmarks, and return its path."""
    settings = json.loads((HERE / "asv.conf.json").read_text())
    settings |= {
        "repo": git("rev-parse", "--path-format=absolute", "--git-common-dir")[0],
        "benchmark_dir": str(BENCHES),
        "results_dir": str(WORK / "results"),
        "html_dir": str(WORK / "html"),
        "env_dir": str(WORK / "env"),
        "default_benchmark_timeout": 120,
        "regressions_thresholds": {".*": THRESHOLD},
    }
    WORK.mkdir(parents=True, exist_ok=True)
    path = WORK / "asv.conf.json"
    path.write_text(json.dumps(settings))
    return path


def measure(commit):
    """Run the core suite on the installed revision, and return the path of asv's result file."""
    config, folders = configure(), [str(INSTALLED), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders), "PYTHONSAFEPATH": "1"}
    cases = core_suite.names(sorted(core_suite.bench_files().keys() & copy_benchmarks(environment).keys()))
    shutil.rmtree(WORK / "results", ignore_errors=True)
    core_suite.run_asv("machine", "--yes", config=config)
    # asv's exit status is 2 where a benchmark fails, as some do on early revisions.
    arguments = ("--python=same", "--no-pull", "--set-commit-hash", commit, *core_suite.SAMPLING)
    status = core_suite.run_asv(
        "run", "--show-stderr", *arguments, "--bench", core_suite.pattern(cases), config=config, environment=environment
    )
    results = [path for path in (WORK / "results").glob("*/*.json") if path.name != "machine.json"]
    if status not in (0, 2) or not results:
        raise SystemExit(f"asv could not run the core suite on {commit[:8]}")
    return results[0]


def keep(path):
    """Keep a result file of asv and its description of the machine, without names of this machine and its folders."""
    result, descriptions = json.loads(path.read_text()), json.loads((path.parents[1] / "benchmarks.json").read_text())
    name = machine_name(result["params"])
    columns = [column for column in result["result_columns"] if column in COLUMNS]
    results = {
        benchmark: [dict(zip(result["result_columns"], row, strict=False)).get(column) for column in columns]
        for benchmark, row in result["results"].items()
    }
    version = f"{sys.version_info.major}.{sys.version_info.minor}"  # asv has the path of Python in its place
    result |= {"env_name": f"wheel-py{version}", "python": version, "env_vars": {}, "durations": {}}
    # The name of the kernel alone: its release is of this machine, and a new one would end the history.
    system = {"os": result["params"]["os"].partition(" ")[0]}
    params = result["params"] | {"machine": name, "python": version, **system}
    result |= {"params": params, "result_columns": columns, "results": results}
    folder = KEPT / name
    folder.mkdir(parents=True, exist_ok=True)
    machine = json.loads((path.parent / "machine.json").read_text())
    _write(folder / "machine.json", machine | {"machine": name, **system})
    _write(folder / f"{result['commit_hash'][:8]}-{result['env_name']}.json", result)
    known = KEPT / "benchmarks.json"
    kept = json.loads(known.read_text()) if known.is_file() else {"version": descriptions["version"]}
    _write(known, kept | {name: descriptions[name] | {"code": ""} for name in results})
    return folder


def _write(path, document):
    # asv writes NaN for cases that were not selected.
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in document.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


# ---- publication -----------------------------------------------------------------------------------------------------


def publish(branch="main"):
    """Make asv's site of the kept results, store the regressions that it finds, and return the site's folder."""
    config = configure()
    settings = json.loads(config.read_text()) | {"results_dir": str(KEPT), "branches": [branch]}
    config.write_text(json.dumps(settings))
    if core_suite.run_asv("publish", "--no-pull", config=config):
        raise SystemExit("asv could not publish the kept results")
    html = Path(settings["html_dir"])
    found = json.loads((html / "regressions.json").read_text())["regressions"]
    hashes = json.loads((html / "index.json").read_text())["revision_to_hash"]
    records = []
    for name, _, machine, _, last, best, jumps in found:
        for first, then, before, after in jumps:
            commits = [hashes[str(number)] for number in (first, then) if number is not None]
            figures = {"before": before, "after": after, "last": last, "best": best}
            records.append({"benchmark": name, "machine": machine, "commits": commits, **figures})
    _write(REGRESSIONS, {"threshold": THRESHOLD, "regressions": sorted(records, key=lambda row: row["benchmark"])})
    return html


def format_page():
    """Return the measured revisions and their regressions in Markdown, for the pages."""
    names, lines = listed(), []
    for folder in sorted(path.parent for path in KEPT.glob("*/machine.json")):
        results = [json.loads(path.read_text()) for path in folder.glob("*-wheel-py*.json")]
        commits = [result["commit_hash"] for result in sorted(results, key=lambda result: result["date"])]
        shown = [f"{commit[:8]} ({names[commit]})" if commit in names else commit[:8] for commit in commits]
        lines += [f"{json.loads((folder / 'machine.json').read_text())['cpu']}: {', '.join(shown)}.", ""]
    if not REGRESSIONS.is_file():
        return "\n".join([*lines, "No history has been published.", ""])
    records = json.loads(REGRESSIONS.read_text())["regressions"]
    lines += ["| benchmark | before | after | times | commits |", "|---|---|---|---|---|"]
    for row in records:
        spans = " to ".join(commit[:8] for commit in row["commits"])
        times = row["after"] / row["before"]
        lines.append(f"| `{row['benchmark']}` | {row['before']:.3g} | {row['after']:.3g} | {times:.2f} | {spans} |")
    return "\n".join([*lines, "" if records else "\nNo regression was found.", ""])


def main(argv=None):
    """Measure revisions, or publish what is kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("run", "publish"))
    parser.add_argument("--last", type=int, default=5, metavar="N", help="measure the last N commits of main as well")
    parser.add_argument("--only", nargs="+", default=[], metavar="HASH", help="measure these revisions, again if kept")
    arguments = parser.parse_args(argv)
    if arguments.action == "run":
        commits = [git("rev-parse", f"{name}^{{commit}}")[0] for name in arguments.only]
        for commit in commits or selected(arguments.last):
            if commits or not list(KEPT.glob(f"*/{commit[:8]}-wheel-py*.json")):
                build(commit)
                print(keep(measure(commit)), commit[:8], flush=True)
    print(publish())
    return 0


if __name__ == "__main__":
    sys.exit(main())
