"""Users with rows on remote nodes: the server's substitute for their interactions."""

import numpy as np

from fastfedrec.data.interactions import Interactions

__all__ = ["RemoteUsers"]


class RemoteUsers(Interactions):
    """Users with ids but without entries; the absence of entries carries no information for `fit`."""

    @classmethod
    def named(cls, global_user_ids: np.ndarray, user_ids: np.ndarray, item_ids: np.ndarray) -> "RemoteUsers":
        """Return users with given ids over a public catalogue; random draws and messages use `global_user_ids`."""
        indptr = np.zeros(len(user_ids) + 1, dtype=np.int64)
        values = np.zeros(0, dtype=np.float32)  # None would state that the remote values are all 1
        return cls(indptr, indptr[:0], values, None, user_ids, item_ids, global_user_ids)

    @classmethod
    def numbered(cls, n_users: int, item_ids: np.ndarray) -> "RemoteUsers":
        """Return users that are numbered from 0 over a public catalogue."""
        return cls.named(np.arange(n_users), np.arange(n_users), item_ids)
