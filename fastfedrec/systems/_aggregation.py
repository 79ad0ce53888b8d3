"""The parameter `aggregation` of models of noisy sums: its checks, the source of the noise, and notes of the ledger."""

from typing import Protocol

from fastfedrec.accounting import Ledger
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.local import LocalEngine
from fastfedrec.systems._noise_source import NodeNoise, NoiseSource, ServerNoise

__all__ = ["Aggregated", "check_honest_fraction", "check_simulation", "noise_source", "note_aggregation"]


class Aggregated(Protocol):
    """A model with the parameters of its aggregation."""

    aggregation: str
    honest_fraction: float | None
    dropout_fraction: float
    n_users: int | None
    n_nodes: int | None


def check_honest_fraction(honest_fraction: float | None, *, is_needed: bool, of: str) -> None:
    """Refuse a missing share of honest nodes, and one that has no effect with the setting `of`."""
    if is_needed == (honest_fraction is not None):
        return
    allowed, remedy = (
        ("a number", "pass the smallest share that you can justify, such as 0.7") if is_needed else ("None", "omit it")
    )
    raise ValueError(f"honest_fraction must be {allowed} with {of}, got {honest_fraction}; {remedy}")


def noise_source(model: Aggregated, n_nodes: int, is_in_sums: bool) -> NoiseSource:
    """Return the parties that add the noise to sums over this number of nodes."""
    if model.aggregation == "central":
        return ServerNoise()
    return NodeNoise.planned(n_nodes, float(model.honest_fraction or 0), float(model.dropout_fraction), is_in_sums)


def check_simulation(model: Aggregated, n_in_data: int, engine: Engine) -> None:
    """Refuse an engine that does not mask sums, and a public number of users that is not the number of nodes."""
    if model.aggregation == "central":
        return
    if model.n_nodes is not None:
        # Nodes add the noise, so an engine without them would release exact sums.
        if not engine.has_secure_sums:
            raise ValueError(
                f"engine must have secure sums of n_nodes={model.n_nodes} nodes, got {type(engine).__name__}; "
                "use fastfedrec.engines.flower.server_app with a roster"
            )
        return
    if not isinstance(engine, LocalEngine):
        raise ValueError(
            f"engine must be None with aggregation='secure', got {type(engine).__name__}, which sends exact sums to "
            "the server; use aggregation='central'"
        )
    if model.n_users not in (None, n_in_data):
        raise ValueError(
            f"n_users must be None or the number of rows ({n_in_data}) with aggregation='secure', got "
            f"{model.n_users}, since each row is a node; omit it"
        )


def note_aggregation(name: str, ledger: Ledger, source: NoiseSource) -> None:
    """Note the assumptions on the nodes, and that this process simulated them."""
    if not isinstance(source, NodeNoise):
        return
    if source.is_in_sums:
        ledger.note(
            f"{name} assumes that each of its {source.n_nodes:,} nodes is trusted with the users that it holds.",
            "assumption",
        )
    n_dishonest = source.n_nodes - int(source.honest_fraction * source.n_nodes)
    ledger.note(
        f"{name} assumes that at most {n_dishonest:,} of its {source.n_nodes:,} nodes are dishonest. They may reveal "
        "their shares of the noise to the server, or add none. Then the figure against the server holds for all.",
        "assumption",
    )
    ledger.note(
        f"{name} assumes that {source.n_answers:,} nodes or more answer each round. All others may be honest, so "
        f"{source.n_counted:,} shares of the noise count. A fit with fewer answers has no result.",
        "assumption",
    )
    ledger.note("The data of a node must not decide whether it answers.", "assumption")
    if source.is_in_sums:
        return
    ledger.note(
        "All nodes were simulated in one process, which saw all data. The figure against the server is for a "
        "deployment with secure aggregation, and it holds for no party with access to this process.",
        "not covered",
    )
