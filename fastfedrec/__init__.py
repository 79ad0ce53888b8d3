"""fastfedrec: the compiled backend for private federated recommenders.

Names are imported when they are first used, so that a program pays for the parts it calls.
"""

import importlib.util
from typing import TYPE_CHECKING

if importlib.util.find_spec("fastfedrec._kernels") is None:
    raise ImportError(
        f"this is the source tree of fastfedrec, {__path__[0]}, where no kernel is compiled; "
        "`pip install .`, then start Python in another folder or as `python -P`"
    )

from fastfedrec.core import names as _names

# A child is to know that it was forked, whatever was used before.
from fastfedrec.core import threads as _threads
from fastfedrec.core.version import __version__

if TYPE_CHECKING:
    from fastfedrec import accounting, audit, datasets, engines, evaluation, mechanisms, testing
    from fastfedrec.compute import als, clustering, hadamard, nmf, ranking, row_sums, sgd
    from fastfedrec.compute.networks import gru, two_tower
    from fastfedrec.core import doctor, hardware
    from fastfedrec.core.randomness import Key
    from fastfedrec.data.interactions import Interactions
    from fastfedrec.mechanisms.item_choice import choose_items
    from fastfedrec.rounds.engine import NoAnswerError
    from fastfedrec.rounds.system import DivergenceError
    from fastfedrec.studies import attacks
    from fastfedrec.studies.advise import advice as advise
    from fastfedrec.studies.sweep import sweeps as sweep
    from fastfedrec.systems.baselines.item_models import EASE, ItemKNN, OwnHistory
    from fastfedrec.systems.baselines.popularity import DPPopularity, Popularity, Random
    from fastfedrec.systems.dp_als.model import DPALS
    from fastfedrec.systems.dplcf import DPLCF
    from fastfedrec.systems.fedrec.model import FedRec
    from fastfedrec.systems.fedrec.plus_plus import FedRecPlusPlus
    from fastfedrec.systems.fmf.dp_fmf import DPFMF
    from fastfedrec.systems.fmf.fmf_ldp import FMFLDP
    from fastfedrec.systems.gram.dp_gram import DPGram
    from fastfedrec.systems.gram.shuffled_sketch import ShuffledSketchGram
    from fastfedrec.systems.private_prototypes.model import PrivatePrototypes
    from fastfedrec.systems.privrec.model import PrivRec
    from fastfedrec.systems.rating_svd.baselines import BiasedMF, GlobalMean, ItemMean, RatingItemKNN, UserMean
    from fastfedrec.systems.rating_svd.laplace_rr_svd import LaplaceRRSVD
    from fastfedrec.systems.recommender import load

__all__ = sorted([*_names.HOMES, *_names.MODULES, "__version__"])


if not TYPE_CHECKING:  # a type checker is to complain of names that are not there

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found = _names.find(name)
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
