"""PrivateRecommender's choice of a system by public numbers, at the start of every fit; one thread."""

from fastfedrec.systems.private_recommender.choice import advise, stored_sweeps
from fastfedrec.systems.private_recommender.recipes import calibrated


class Choose:
    """Choice in each trust model, without cached results."""

    params = ("central", "shuffle", "local")
    param_names = ("trust",)

    def setup(self, trust):
        stored_sweeps()
        assert advise(20_000, 500, 1.0, trust).best.epsilon <= 1.0

    def time_advise(self, trust):
        calibrated.cache_clear()
        advise(20_000, 500, 1.0, trust)
