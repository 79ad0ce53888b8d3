"""Compare the features of this package and its peers in a table, with a check of each cell.

Each "yes" names an object that must be importable.  In an empty cell no module, class or function of the peer may match
the feature's pattern, so that new features of a peer are detected.  ``python -P .ci/peers.py`` checks the packages that
are installed, and fails if a cell is wrong; ``--table`` prints the table that a page includes.
"""

import argparse
import importlib
import importlib.metadata
import importlib.util
import re
import sys
import warnings
from pathlib import Path

#: Import name and last checked version by the name of the package.
PACKAGES = {
    "fastfedrec": ("fastfedrec", "this version"),
    "implicit": ("implicit", "0.7.3"),
    "LensKit": ("lenskit", "2025.8.1"),
    "RecBole": ("recbole", "1.2.1"),
    "Flower": ("flwr", "1.42.0"),
    "OpenDP": ("opendp", "0.16.0"),
    "diffprivlib": ("diffprivlib", "0.6.6"),
    "dp-accounting": ("dp_accounting", "0.6.0"),
}
NAME = re.compile(r"^\s*(?:class|(?:c?p?def|async def)) +(\w+)", re.MULTILINE)
#: For each feature a pattern of names of classes, functions or modules, and an object of each package that has it.
FEATURES = {
    "recommenders from implicit feedback": (
        r"(?i)^(als|(implicit)?als|itemknn\w*|matrix_?factorization)$",
        {
            "fastfedrec": "fastfedrec.ImplicitALS",
            "implicit": "implicit.als.AlternatingLeastSquares",
            "LensKit": "lenskit.als.ImplicitMFScorer",
            "RecBole": "recbole.model.general_recommender.itemknn.ItemKNN",
        },
    ),
    "neural models of sequences": (
        r"(?i)sasrec|gru4rec|bert4rec",
        {"RecBole": "recbole.model.sequential_recommender.sasrec.SASRec"},
    ),
    "ranking metrics": (
        r"(?i)ndcg",
        {
            "fastfedrec": "fastfedrec.evaluation.evaluate",
            "implicit": "implicit.evaluation.ranking_metrics_at_k",
            "LensKit": "lenskit.metrics.NDCG",
            "RecBole": "recbole.evaluator.metrics.NDCG",
        },
    ),
    "intervals, and tests of differences": (
        r"(?i)bootstrap|permutation_?test|wilcoxon|holm",
        {"fastfedrec": "fastfedrec.evaluation.compare"},
    ),
    "recommenders with a guarantee": (
        r"(?i)^(dp|private)_?(als|\w*recommend\w*|gram|mf|fmf)$",
        {"fastfedrec": "fastfedrec.DPGram"},
    ),
    "classifiers and regressions with a guarantee": (
        r"(?i)^logistic_?regression$",
        {"diffprivlib": "diffprivlib.models.LogisticRegression"},
    ),
    "queries of tables with a guarantee": (r"^LazyFrameQuery$", {"OpenDP": "opendp.extras.polars.LazyFrameQuery"}),
    "noise mechanisms": (
        r"(?i)^(make_)?(discrete)?(laplace|gaussian)$|localdp",
        {
            "fastfedrec": "fastfedrec.mechanisms.DiscreteLaplace",
            "Flower": "flwr.clientapp.mod.LocalDpMod",
            "OpenDP": "opendp.measurements.make_laplace",
            "diffprivlib": "diffprivlib.mechanisms.Laplace",
        },
    ),
    "composition of privacy costs": (
        r"(?i)accountant|composition",
        {
            "fastfedrec": "fastfedrec.accounting.PLDAccountant",
            "Flower": "flwr.supercore.privacy_accounting.rdp_accountant.RdpAccountant",
            "OpenDP": "opendp.combinators.make_composition",
            "diffprivlib": "diffprivlib.BudgetAccountant",
            "dp-accounting": "dp_accounting.pld.PLDAccountant",
        },
    ),
    "cost of reports behind a shuffler": (
        r"(?i)shuffled|shuffle_?(model|epsilon|amplif)",
        {"fastfedrec": "fastfedrec.accounting.shuffled_epsilon"},
    ),
    "ledger of a whole run by adversary": (r"^Ledger$", {"fastfedrec": "fastfedrec.accounting.Ledger"}),
    "audits of mechanisms": (r"(?i)^audit", {"fastfedrec": "fastfedrec.audit.audit"}),
    "membership attacks": (r"(?i)membership_?(inference|attack)|^attack", {"fastfedrec": "fastfedrec.attacks"}),
    "rounds on devices": (
        r"(?i)federated|fedavg",
        {"fastfedrec": "fastfedrec.engines.Engine", "Flower": "flwr.serverapp.strategy.FedAvg"},
    ),
    "secure aggregation": (r"(?i)sec_?agg|secure_?agg", {"Flower": "flwr.server.workflow.SecAggPlusWorkflow"}),
}
HAS = "yes"


def is_importable(path):
    """Return whether an object, written as ``module.name``, can be imported."""
    module, _, name = path.rpartition(".")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return hasattr(importlib.import_module(module), name) or bool(importlib.import_module(path))
        except ImportError:
            return False


def names_of(package):
    """Yield every module, class and function in a package's sources without tests, as ``module.py: name``."""
    (folder,) = importlib.util.find_spec(package).submodule_search_locations
    for path in sorted(Path(folder).rglob("*.py*")):
        source = path.relative_to(folder)
        if path.suffix not in (".py", ".pyi", ".pyx") or {"tests", "test"} & {*source.parts}:
            continue
        yield f"{source}: {source.stem}"
        yield from (f"{source}: {name}" for name in NAME.findall(path.read_text(errors="replace")))


def faults(features, packages):
    """Yield a line for each wrong cell of an installed package."""
    for package, (name, _) in packages.items():
        if importlib.util.find_spec(name) is None:
            continue
        names = list(names_of(name))
        for feature, (pattern, has) in features.items():
            if package in has:
                if not is_importable(has[package]):
                    yield f"{package}, {feature}: {has[package]} is not there"
            elif matches := [name for name in names if re.search(pattern, name.partition(": ")[2])]:
                yield f"{package}, {feature}: the table has none, and there are {', '.join(matches[:3])}"


def version(name):
    """Return the installed version of a package, given its import name."""
    try:
        return importlib.metadata.version(name.replace("_", "-"))
    except importlib.metadata.PackageNotFoundError:
        return "of a checkout"


def table(features, packages=PACKAGES):
    """Return the table as Markdown."""
    head = " | ".join(f"{package} {checked}" for package, (_, checked) in packages.items())
    lines = [f"| | {head} |", "|---" * (len(packages) + 1) + "|"]
    lines += [
        f"| {feature} | {' | '.join(HAS if package in has else '' for package in packages)} |"
        for feature, (_, has) in features.items()
    ]
    return "\n".join(lines)


def main(argv=None):
    """Check all cells, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="print the table")
    if parser.parse_args(argv).table:
        print(table(FEATURES))
        return 0
    messages = list(faults(FEATURES, PACKAGES))
    for package, (name, _) in PACKAGES.items():
        print(package, version(name) if importlib.util.find_spec(name) else "is not installed: not checked")
    print("\n".join(messages) or "no fault")
    return bool(messages)


if __name__ == "__main__":
    sys.exit(main())
