"""fastfedrec: the compiled backend for private federated recommenders."""

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
from fastfedrec._version import __version__
from fastfedrec.interactions import Interactions
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
