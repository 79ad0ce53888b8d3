"""fastfedrec: the compiled backend for private federated recommenders.

Names are imported when they are first used, so that a program pays for the parts it calls.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING

if importlib.util.find_spec("fastfedrec._kernels") is None:
    raise ImportError(
        f"this is the source tree of fastfedrec, {__path__[0]}, where no kernel is compiled; "
        "`pip install .`, then start Python in another folder or as `python -P`"
    )

from fastfedrec import _threads  # noqa: F401 -- a child is to know that it was forked, whatever was used before
from fastfedrec._version import __version__

if TYPE_CHECKING:
    from fastfedrec import (
        accounting,
        als,
        attacks,
        audit,
        datasets,
        doctor,
        engines,
        evaluation,
        hardware,
        mechanisms,
        ranking,
        sgd,
    )
    from fastfedrec.engines.base import NoAnswerError
    from fastfedrec.interactions import Interactions
    from fastfedrec.item_choice import choose_items
    from fastfedrec.randomness import Key
    from fastfedrec.systems.base import DivergenceError
    from fastfedrec.systems.baselines import DPPopularity, Popularity, Random
    from fastfedrec.systems.dp_als import DPALS
    from fastfedrec.systems.dp_fmf import DPFMF
    from fastfedrec.systems.dp_gram import DPGram
    from fastfedrec.systems.dplcf import DPLCF
    from fastfedrec.systems.fedrec import FedRec
    from fastfedrec.systems.fedrec_plus_plus import FedRecPlusPlus
    from fastfedrec.systems.fmf_ldp import FMFLDP
    from fastfedrec.systems.item_models import EASE, ItemKNN, OwnHistory
    from fastfedrec.systems.laplace_rr_svd import LaplaceRRSVD
    from fastfedrec.systems.private_prototypes import PrivatePrototypes
    from fastfedrec.systems.privrec import PrivRec
    from fastfedrec.systems.rating_baselines import BiasedMF, GlobalMean, ItemMean, RatingItemKNN, UserMean
    from fastfedrec.systems.recommender import load
    from fastfedrec.systems.shuffled_sketch import ShuffledSketchGram

# Where the public names are that are no modules.
_HOMES = {
    "BiasedMF": "systems.rating_baselines",
    "DPALS": "systems.dp_als",
    "DPFMF": "systems.dp_fmf",
    "DPGram": "systems.dp_gram",
    "DPLCF": "systems.dplcf",
    "DPPopularity": "systems.baselines",
    "DivergenceError": "systems.base",
    "EASE": "systems.item_models",
    "FMFLDP": "systems.fmf_ldp",
    "FedRec": "systems.fedrec",
    "FedRecPlusPlus": "systems.fedrec_plus_plus",
    "GlobalMean": "systems.rating_baselines",
    "Interactions": "interactions",
    "ItemKNN": "systems.item_models",
    "ItemMean": "systems.rating_baselines",
    "Key": "randomness",
    "LaplaceRRSVD": "systems.laplace_rr_svd",
    "NoAnswerError": "engines.base",
    "OwnHistory": "systems.item_models",
    "Popularity": "systems.baselines",
    "PrivRec": "systems.privrec",
    "PrivatePrototypes": "systems.private_prototypes",
    "Random": "systems.baselines",
    "RatingItemKNN": "systems.rating_baselines",
    "ShuffledSketchGram": "systems.shuffled_sketch",
    "UserMean": "systems.rating_baselines",
    "choose_items": "item_choice",
    "load": "systems.recommender",
}

__all__ = [
    "DPALS",
    "DPFMF",
    "DPLCF",
    "EASE",
    "FMFLDP",
    "BiasedMF",
    "DPGram",
    "DPPopularity",
    "DivergenceError",
    "FedRec",
    "FedRecPlusPlus",
    "GlobalMean",
    "Interactions",
    "ItemKNN",
    "ItemMean",
    "Key",
    "LaplaceRRSVD",
    "NoAnswerError",
    "OwnHistory",
    "Popularity",
    "PrivRec",
    "PrivatePrototypes",
    "Random",
    "RatingItemKNN",
    "ShuffledSketchGram",
    "UserMean",
    "__version__",
    "accounting",
    "als",
    "attacks",
    "audit",
    "choose_items",
    "datasets",
    "doctor",
    "engines",
    "evaluation",
    "hardware",
    "load",
    "mechanisms",
    "ranking",
    "sgd",
]


if not TYPE_CHECKING:  # a type checker is to complain of names that are not there

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = _HOMES.get(name)
        if home is None:
            return importlib.import_module(f"{__name__}.{name}")
        globals()[name] = found = getattr(importlib.import_module(f"{__name__}.{home}"), name)
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
