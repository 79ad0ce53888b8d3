"""Models whose releases may say to make other rounds than those that were planned, at the same cost."""

from abc import abstractmethod

from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.fit import Phase


class Courses:
    """Plans all that users may be asked for, before any of it."""

    @abstractmethod
    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        """All rounds, which together cost what was asked for; from public numbers alone, and before any data are."""

    def _courses(self, phases: list[Phase]) -> list[list[Phase]]:
        """What a run may come to, all at the same cost: the plan, and what a release may say to do instead."""
        return [phases]

    def _all_phases(self, data: Interactions, key: Key) -> list[Phase]:
        """All that users may be asked for: the plan, then what may come in place of its end."""
        plan, *others = self._courses(self._plan(data, key))
        return plan + [phase for course in others for phase in course if phase.system.n_skipped]
