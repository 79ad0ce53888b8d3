"""Users whose rows are elsewhere: what a server knows of them, in the place of their interactions."""

import numpy as np

from fastfedrec.data.interactions import Interactions

__all__ = ["RemoteUsers"]


class RemoteUsers(Interactions):
    """Users of whom only the number and names are here: no row has an entry, and `fit` is not to conclude anything."""

    @classmethod
    def named(cls, global_user_ids: np.ndarray, user_ids: np.ndarray, item_ids: np.ndarray) -> "RemoteUsers":
        """These users over a public catalogue.

        Parameters
        ----------
        global_user_ids : ndarray of shape (n_users,), uint64
            By which draws and messages name them.
        user_ids : ndarray of shape (n_users,)
            Distinct.
        item_ids : ndarray of shape (n_items,)
            The catalogue.

        Returns
        -------
        RemoteUsers
            Without an interaction.
        """
        nothing = np.zeros(len(user_ids) + 1, dtype=np.int64)
        values = np.zeros(0, dtype=np.float32)  # they may be ratings
        return cls(nothing, nothing[:0], values, None, user_ids, item_ids, global_user_ids)

    @classmethod
    def numbered(cls, n_users: int, item_ids: np.ndarray) -> "RemoteUsers":
        """Users without names.

        Parameters
        ----------
        n_users : int
            How many.
        item_ids : ndarray of shape (n_items,)
            The catalogue.

        Returns
        -------
        RemoteUsers
            Numbered from 0.
        """
        return cls.named(np.arange(n_users), np.arange(n_users), item_ids)
