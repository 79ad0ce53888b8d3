# Included by every kernel that runs vector code, so that fastfedrec.hardware can choose its level.
cdef extern from "_kernels/core/_levels.h" namespace "fastfedrec":
    int _current_level "fastfedrec::level"


def use_level(
    int level,   # from 0 to `hardware.best_level()`
):
    """Use the vector code of this level in later calls."""
    global _current_level
    _current_level = level
