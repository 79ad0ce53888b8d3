"""The run of a PrivRec fit: its ledgers, its checkpoint, and the check for divergence."""

from collections.abc import Callable
from dataclasses import astuple, dataclass

import numpy as np

from fastfedrec.accounting import CommunicationLedger, Ledger
from fastfedrec.core.check import check_integer
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.log import InteractionLog
from fastfedrec.rounds.checkpoint import Checkpoint, read_traffic
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.system import ArrayRule, DivergenceError
from fastfedrec.systems._transaction import Account
from fastfedrec.systems.privrec._cohort import CohortRounds, PrivRecState

_MAX_PARAMETER = 10.0  # weights start below 1; at this size, logits are in the tens of thousands
_FIELDS = ("ledger", "rounds", "round")  # header of a stored state
_MOMENTS = "moments"
_MAX_MEAN_NOISE = 0.003  # in each parameter of a server step, for training that learns


@dataclass
class Run:
    """The state that all stages of one fit share; a resumed stage replaces the ledgers by the stored ones."""

    account: Account
    communication: CommunicationLedger
    engine: Engine
    key: Key
    n_threads: int
    show_progress: bool
    name: str  # of the model

    @property
    def ledger(self) -> Ledger:
        """Cost of the run so far."""
        return self.account.ledger

    def open(self, system: CohortRounds, start: Callable[[], np.ndarray], n_rounds: int) -> tuple[PrivRecState, int]:
        """Return state and number of a stage's next round; `start` returns the first parameters of a new stage."""
        folder = system.checkpoint
        stored = None if folder is None else folder.restore(_FIELDS)
        if folder is None or stored is None:
            state = system.state_of(start(), 0)
            self._store_state(folder, -1, state)
            return state, 0
        header, arrays = stored
        with folder.checking_state():
            shape = (system.network.n_parameters,)
            rules = {"parameters": ArrayRule(np.float32, shape)}
            if system.server_optimizer == "adam":
                rules[_MOMENTS] = ArrayRule(np.float64, (2, *shape))
            if arrays.keys() != rules.keys():
                raise ValueError(f"it must have the arrays {sorted(rules)}, got {sorted(arrays)}")
            for name, rule in rules.items():
                if violation := rule.violation(arrays[name]):
                    raise ValueError(f"{name} {violation}")
            last_round = check_integer("round", header["round"], low=-1, high=n_rounds - 1)
            communication = CommunicationLedger([read_traffic(traffic) for traffic in header["rounds"]])
            ledger = Ledger.from_dict(header["ledger"], check_costs=False)
        # Only after all checks, so that a broken checkpoint leaves the account as it was.
        self.account.resume(ledger)
        self.communication = communication
        return system.state_of(arrays["parameters"], last_round + 1, arrays.get(_MOMENTS)), last_round + 1

    def rounds(
        self,
        system: CohortRounds,
        data: Interactions | InteractionLog,
        state: PrivRecState,
        first_round: int,
        n_rounds: int,
        after_round: Callable[[int, np.ndarray], None] | None = None,
    ) -> np.ndarray:
        """Run the remaining rounds of a stage, and return its last parameters."""

        def after(round_number: int, state: PrivRecState) -> None:
            check_convergence(system, state.parameters, round_number)
            self._store_state(system.checkpoint, round_number, state)
            if after_round is not None:
                after_round(round_number, state.parameters)

        return self.engine.run(
            system,
            state,
            data,  # type: ignore[arg-type]
            key=self.key,
            n_rounds=n_rounds,
            first_round=first_round,
            ledger=self.ledger,
            communication=self.communication,
            n_threads=self.n_threads,
            show_progress=self.show_progress,
            after_round=after,
            name=self.name,
        ).parameters

    def _store_state(self, folder: Checkpoint | None, round_number: int, state: PrivRecState) -> None:
        """Store the state after a round, if there is a checkpoint."""
        if folder is None:
            return
        rounds = [astuple(traffic) for traffic in self.communication.rounds]
        header = {"ledger": self.ledger.to_dict(), "rounds": rounds, "round": round_number}
        # Only Adam's state has moments.
        moments = {_MOMENTS: state.moments} if len(state.moments) else {}
        folder.keep_state(header, {"parameters": state.parameters} | moments)


def check_convergence(system: CohortRounds, parameters: np.ndarray, round_number: int) -> None:
    """Raise if the parameters, which are public, have left the usable range."""
    largest = float(np.abs(parameters).max())
    if largest <= _MAX_PARAMETER:
        return
    reason = "lower learning_rate or server_learning_rate"
    if system.noise is not None:
        # The noise on the sum, divided by the cohort's size.
        mean_noise = 2 * system.noise.noise_multiplier * system.noise.clip_norm / system.cohort_size
        reason = (
            f"the noise is {mean_noise:.3g} in each parameter of the mean update, and training needs about "
            f"{_MAX_MEAN_NOISE / system.server_learning_rate:.2g} or less: lower clip_norm, or enlarge cohort_size"
        )
    raise DivergenceError(
        f"{system.stage} diverged in round {round_number}: the largest parameter is {largest:.3g}; {reason}"
    )
