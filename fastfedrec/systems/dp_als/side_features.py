"""Collective matrix factorization: item factors that also approximate public features of the items."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from fastfedrec.data.item_features import AlignedFeatures

__all__ = ["SideFeatures"]

_N_ALTERNATIONS = 3  # of the server's two half steps, which read only released sums and public features
_SIDE_RIDGE = 1e-3  # ridge of the features' factors, relative to the mean squared entry of an item factor times n_items


@dataclass(frozen=True)
class SideFeatures:
    """Public features F, factorized as V W' with the item factors V of the users' sums.

    Parameters
    ----------
    rows : csr_array of shape (n_items, n_dimensions), float64
        F; each item's row has norm 1, or is zero if the item has no features.
    weight : float
        Weight of the features' squared error: at 1 its mean curvature equals the noise's ridge.

    References
    ----------
    .. [1] Curmei, Krichene, Zhang, Sundararajan, "Private matrix factorization with public item features", RecSys 2023.
    .. [2] Singh, Gordon, "Relational learning via collective matrix factorization", KDD 2008.
    """

    rows: Any
    weight: float

    @classmethod
    def of(cls, features: AlignedFeatures, weight: float) -> Self:
        """Concatenate all blocks of columns, with each item's row scaled to norm 1."""
        rows = scipy.sparse.hstack(features.blocks, format="csr", dtype=np.float64)
        # Rows without features keep the scale 0 and stay zero.
        norms = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
        scales = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
        return cls(scipy.sparse.csr_array(scipy.sparse.diags_array(scales) @ rows), weight)

    def factorize(
        self, factors: np.ndarray, matrices: np.ndarray, vectors: np.ndarray, ridge: float
    ) -> NDArray[np.float64]:
        """Return item factors V that minimize the users' quadratic form plus the features' squared error.

        The users' form is v' A_i v - 2 b_i'v for each item, with A_i in `matrices` and b_i in `vectors`; `factors` is
        its minimum, where the alternation starts.  The features' weight is proportional to `ridge`, which A_i contains.
        """
        n_factors, weight = factors.shape[1], None
        known = (np.diff(self.rows.indptr) > 0)[:, None]
        for _ in range(_N_ALTERNATIONS):
            known_factors = factors * known
            gram = known_factors.T @ known_factors
            size = float(gram.trace()) / n_factors
            if not size > 0:
                break  # all items with features have zero factors, which do not determine W
            # W, of shape (n_dimensions, n_factors), by least squares over the items with features.
            ridge_matrix = _SIDE_RIDGE * size * np.eye(n_factors)
            side_factors = np.linalg.solve(gram + ridge_matrix, (self.rows.T @ known_factors).T).T
            curvature = side_factors.T @ side_factors
            # The weight comes from the first W, so that later steps minimize one objective.
            if weight is None:
                weight = self.weight * ridge * n_factors / max(float(curvature.trace()), np.finfo(float).tiny)
            combined = matrices + weight * curvature * known[:, :, None]
            factors = np.linalg.solve(combined, (vectors + weight * (self.rows @ side_factors))[:, :, None])[:, :, 0]
        return factors
