"""The error of a shuffler's refusals."""

__all__ = ["ShufflerError"]


class ShufflerError(Exception):
    """Refusal of a shuffler, or failure to reach it.

    Parameters
    ----------
    reason : str
        Reason of the refusal or failure.
    is_final : bool
        Whether a retry is useless.
    kind : str
        Kind of the reason, for counts: one of a few words.
    """

    def __init__(self, reason: str, *, is_final: bool = False, kind: str = "invalid"):
        super().__init__(reason)
        self.is_final, self.kind = is_final, kind
