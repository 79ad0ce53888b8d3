# Included by every kernel that runs vector code, so that fastfedrec.hardware can choose its level.
cdef extern from "_kernels/core/_levels.h" namespace "fastfedrec":
    int _current_level "fastfedrec::level"


def use_level(
    int level,   # from 0 to `hardware.best_level()`
):
    """Run the vector code of this level from now on."""
    global _current_level
    _current_level = level
