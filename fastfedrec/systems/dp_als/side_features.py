"""Collective matrix factorization: item factors that also have to explain public features of the items."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from fastfedrec.data.item_features import AlignedFeatures

__all__ = ["SideFeatures"]

_N_ALTERNATIONS = 3  # of the server's two half steps; they read released sums and public features alone
_SIDE_RIDGE = 1e-3  # of the features' factors, over the mean square of an item factor's entry times the items


@dataclass(frozen=True)
class SideFeatures:
    """Public features F, factorized as V W' with the item factors V that the users' sums ask for.

    Parameters
    ----------
    rows : csr_array of shape (n_items, n_dimensions), float64
        F; each item's row has norm 1, or is zeros where the item has no features.
    weight : float
        Of the features' squared error: with 1 its mean curvature is that of the noise's ridge.

    References
    ----------
    .. [1] Curmei, Krichene, Zhang, Sundararajan, "Private matrix factorization with public item features", RecSys 2023.
    .. [2] Singh, Gordon, "Relational learning via collective matrix factorization", KDD 2008.
    """

    rows: Any
    weight: float

    @classmethod
    def of(cls, features: AlignedFeatures, weight: float) -> Self:
        """Put all columns side by side, each item's row of norm 1."""
        rows = scipy.sparse.hstack(features.blocks, format="csr", dtype=np.float64)
        norms = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
        scales = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
        return cls(scipy.sparse.csr_array(scipy.sparse.diags_array(scales) @ rows), weight)

    def factorize(self, factors: np.ndarray, left: np.ndarray, right: np.ndarray, ridge: float) -> NDArray[np.float64]:
        """Return item factors V that minimize the users' quadratic form plus the features' squared error.

        Parameters
        ----------
        factors : ndarray of shape (n_items, n_factors), float64
            V of the users' form alone, where the alternation starts.
        left : ndarray of shape (n_items, n_factors, n_factors), float64
            A_i of the users' form v' A_i v - 2 b_i'v; symmetric, with eigenvalues above 0.
        right : ndarray of shape (n_items, n_factors), float64
            b_i.
        ridge : float
            The ridge that `left` holds against the noise; the features' weight is in proportion to it.

        Returns
        -------
        ndarray of shape (n_items, n_factors), float64
            V.  Items without features change by rounding errors alone.
        """
        n_factors, weight = factors.shape[1], None
        known = (np.diff(self.rows.indptr) > 0)[:, None]
        for _ in range(_N_ALTERNATIONS):
            of_known = factors * known
            gram = of_known.T @ of_known
            size = float(gram.trace()) / n_factors
            if not size > 0:
                break  # all items with features have zero factors, so W is not determined
            # W, of shape (n_dimensions, n_factors), by least squares over the items with features.
            side = np.linalg.solve(gram + _SIDE_RIDGE * size * np.eye(n_factors), (self.rows.T @ of_known).T).T
            curvature = side.T @ side
            # The weight is fixed by the first W, so that later steps minimize one objective.
            if weight is None:
                weight = self.weight * ridge * n_factors / max(float(curvature.trace()), np.finfo(float).tiny)
            both = left + weight * curvature * known[:, :, None]
            factors = np.linalg.solve(both, (right + weight * (self.rows @ side))[:, :, None])[:, :, 0]
        return factors
