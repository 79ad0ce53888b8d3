"""Modules of all public names of `fastfedrec`, for the package's lazy imports, saved files and the command line."""

import importlib
import importlib.util
from typing import Any

__all__ = ["HOMES", "MODULES", "SYSTEMS", "find"]

#: Every system and baseline, by its name on the command line.
SYSTEMS = {
    "private-recommender": "systems.private_recommender.model.PrivateRecommender",
    "fmf-ldp": "systems.fmf.fmf_ldp.FMFLDP",
    "dplcf": "systems.dplcf.DPLCF",
    "laplace-rr-svd": "systems.rating_svd.laplace_rr_svd.LaplaceRRSVD",
    "fedrec": "systems.fedrec.model.FedRec",
    "fedrec-plus-plus": "systems.fedrec.plus_plus.FedRecPlusPlus",
    "sdcf": "systems.sdcf.model.SDCF",
    "fedgnn": "systems.fedgnn.model.FedGNN",
    "private-prototypes": "systems.private_prototypes.model.PrivatePrototypes",
    "privrec": "systems.privrec.model.PrivRec",
    "dp-gram": "systems.gram.dp_gram.DPGram",
    "shuffled-gram": "systems.gram.shuffled_gram.ShuffledGram",
    "shuffled-sketch-gram": "systems.gram.shuffled_sketch.ShuffledSketchGram",
    "dp-subspace": "systems.subspace.model.DPSubspace",
    "dp-als": "systems.dp_als.model.DPALS",
    "dp-fmf": "systems.fmf.dp_fmf.DPFMF",
    "dp-popularity": "systems.baselines.popularity.DPPopularity",
    "popularity": "systems.baselines.popularity.Popularity",
    "own-history": "systems.baselines.item_models.OwnHistory",
    "item-knn": "systems.baselines.item_models.ItemKNN",
    "user-knn": "systems.baselines.user_knn.UserKNN",
    "ease": "systems.baselines.item_models.EASE",
    "implicit-als": "systems.baselines.implicit_als.ImplicitALS",
    "random": "systems.baselines.popularity.Random",
    "ncf": "systems.ncf.model.NCF",
    "dmf": "systems.dmf.model.DMF",
    "central-nmf": "systems.private_prototypes.baselines.CentralNMF",
    "individual-nmf": "systems.private_prototypes.baselines.IndividualNMF",
    "global-mean": "systems.rating_svd.baselines.GlobalMean",
    "user-mean": "systems.rating_svd.baselines.UserMean",
    "item-mean": "systems.rating_svd.baselines.ItemMean",
    "biased-mf": "systems.rating_svd.baselines.BiasedMF",
    "rating-item-knn": "systems.rating_svd.baselines.RatingItemKNN",
}
#: Modules that define the public classes and functions.
HOMES = {name: module for module, _, name in (path.rpartition(".") for path in SYSTEMS.values())} | {
    "ChaCha20": "core.bit_generator",
    "DivergenceError": "rounds.system",
    "Interactions": "data.interactions",
    "Key": "core.randomness",
    "NoAnswerError": "rounds.engine",
    "choose_items": "mechanisms.item_choice",
    "get_include": "capi",
    "load": "systems.recommender",
}
#: Modules that have a short public name.
MODULES = {
    "accounting": "accounting",
    "advise": "systems.private_recommender.choice",
    "als": "compute.als",
    "attacks": "studies.attacks",
    "audit": "audit",
    "capi": "capi",
    "clustering": "compute.clustering",
    "datasets": "datasets",
    "doctor": "core.doctor",
    "engines": "engines",
    "evaluation": "evaluation",
    "gru": "compute.networks.gru",
    "hadamard": "compute.hadamard",
    "hardware": "core.hardware",
    "mechanisms": "mechanisms",
    "nmf": "compute.nmf",
    "ranking": "compute.ranking",
    "row_sums": "compute.row_sums",
    "sgd": "compute.sgd",
    "sweep": "studies.sweep.sweeps",
    "testing": "testing",
    "two_tower": "compute.networks.two_tower",
}


def find(name: str) -> Any:
    """Import and return the class, function or module of a public name, a key of `HOMES` or `MODULES`."""
    if name in MODULES:
        return importlib.import_module(f"fastfedrec.{MODULES[name]}")
    return getattr(importlib.import_module(f"fastfedrec.{HOMES[name]}"), name)


def place_of(name: str) -> str:
    """Return where a name is that the package does not have itself, or a similar name, for an error message."""
    from fastfedrec.core.text import did_you_mean  # imported only for an error

    # A module of the package has no hint: the import statement asks for it here first, and imports it afterwards.
    if not name.startswith("_") and importlib.util.find_spec(f"fastfedrec.{name}") is None:
        for module in ("evaluation", "datasets", "accounting", "mechanisms"):
            if name in getattr(find(module), "__all__", ()):
                return f"; use fastfedrec.{module}.{name}"
        return did_you_mean(name, [*HOMES, *MODULES])
    return ""


def make_stub() -> str:
    """Return the text of ``fastfedrec/__init__.pyi``, which type checkers read instead of the lazy ``__init__.py``."""
    # `setup.py` writes it into every build.
    lines = ['"""Every public name, of the table in core/names.py."""', ""]
    lines += [f"from fastfedrec.{module} import {name}" for name, module in sorted(HOMES.items())]
    for name, path in sorted(MODULES.items()):
        folder, _, module = f"fastfedrec.{path}".rpartition(".")
        lines.append(f"from {folder} import {module} as {name}")
    lines.append("from fastfedrec.core.version import __version__")
    # A type checker treats a name of a stub as public only if `__all__` lists it as a literal.
    return "\n".join([*lines, "", f"__all__ = {sorted([*HOMES, *MODULES, '__version__'])}", ""])
