"""Models of each figure of `ribero2020` with their points and guarantees."""

from dataclasses import dataclass, replace
from typing import Any

from fastfedrec.systems.private_prototypes.baselines import CentralNMF, IndividualNMF
from fastfedrec.systems.private_prototypes.model import PrivatePrototypes

__all__ = [
    "AS_PUBLISHED",
    "AXES",
    "FIGURES",
    "INDIVIDUAL",
    "MANY",
    "MEANS",
    "N_ENTITIES",
    "OBJECTIVES",
    "ONE",
    "ON_DATA",
    "POINTS",
    "ROWS",
    "TITLES",
    "Line",
    "lines_at",
]

FIGURES = ("1", "3", "4", "5", "6", "7", "structured", "2", "8", "9", "entity-size")
ON_DATA = ("2", "8", "9", "entity-size")  # figures on given data; all remaining ones generate counts
OBJECTIVES = ("3", "4")  # figures of k-means alone, with one entity and without factorisation
N_ENTITIES = 10  # number of entities of generated data
MF, INDIVIDUAL, MEANS, ROWS = "MF", "individual MF", "MF + k-means", "MF + k random rows"
# One prototype per entity, and k-means with several ones.
ONE, MANY, AS_PUBLISHED = "one guaranteed mean", "guaranteed k-means", "as published"
CLUSTERS, ONE_EXACT = "k-means", "one exact mean"
DELTA = 1e-5
TITLES = {
    "1": "generated counts over the number of prototypes",
    "3": "k-means objective over epsilon, 10 prototypes of generated counts",
    "4": "k-means objective over the number of prototypes, at several epsilons (Figures 4a and 4b)",
    "5": "generated counts over the server's epochs, for several numbers of entities",
    "6": "generated counts over the number of prototypes, for several numbers of factors",
    "7": "generated counts over the number of factors (Figures 1a, 1c and 7)",
    "structured": "counts with structure over the number of prototypes (not in the paper)",
    "2": "eICU: hospitals that collaborate, over epsilon",
    "8": "MovieLens 1M: ZIP regions that collaborate, over epsilon (Figures 8 and 9)",
    "9": "MovieLens 1M: ZIP regions that collaborate, over the number of factors",
    "entity-size": "RMSE of k prototypes over the users of one entity (not in the paper)",
}
AXES = {"2": "epsilon", "3": "epsilon", "5": "epochs", "7": "factors", "8": "epsilon", "9": "factors"}
AXES |= dict.fromkeys(("1", "4", "6", "structured"), "prototypes") | {"entity-size": "users"}
POINTS = {
    "1": (100, 200, 300), "3": (1.0, 3.0, 10.0, 30.0, 100.0), "4": (1, 10, 30, 100, 300), "5": (1, 2, 5, 10, 20),
    "6": (10, 100, 300), "7": (40, 80, 120), "structured": (100, 200, 300), "2": (1.0, 5.0, 10.0),
    "8": (1.0, 5.0, 10.0), "9": (10, 20, 50), "entity-size": (1_000, 10_000, 30_000, 100_000, 1_000_000),
}  # fmt: skip
_NUMBERS, _EPSILONS = (1, 3, 10, 30, 100), (1.0, 10.0)  # numbers of prototypes and epsilons of "entity-size"
_OBJECTIVE_EPSILONS = (1.0, 10.0, 100.0)  # Figure 4
_ENTITIES = (1, 3, 10)  # Figure 5
_FACTORS = (20, 80)  # Figure 6


@dataclass(frozen=True)
class Line:
    """One model of a figure."""

    model: Any  # unfitted
    guarantee: str  # guarantee of a user: "none", "nominal", or the pair of epsilon and delta
    n_entities: int | None = None  # number of entities that send messages; None for all
    is_clustering: bool = False  # whether the k-means objective is measured, without factorisation


def lines_at(x: float, figure: str) -> dict[str, Line]:
    """Return the models at the point `x` of a figure's horizontal axis (`AXES`), in the order of the table."""
    if figure == "entity-size":
        return {
            f"{k} at epsilon {epsilon:g}": _line(PrivatePrototypes(k, 10, epsilon, DELTA))
            for epsilon in _EPSILONS
            for k in _NUMBERS
        }
    if figure in ("2", "8"):
        return _on_data(figure, x, {MF: 20, INDIVIDUAL: 10, MEANS: 20}, 10)
    if figure == "9":
        return _on_data(figure, 10.0, dict.fromkeys((MF, INDIVIDUAL, MEANS), int(x)), int(x))
    shared: dict[str, Any] = {"prototypes": "zero_filled", "value_range": (0.0, 8.0), "max_entries": 500}
    if figure == "3":
        return {
            CLUSTERS: _clusters(10, None, shared),
            ONE_EXACT: _clusters(1, None, shared),
            ONE: _clusters(1, x, shared),
            MANY: _clusters(10, x, shared),
            AS_PUBLISHED: _clusters(10, x, shared | {"variant": "published"}),
        }
    if figure == "4":
        private = {
            f"{name} at epsilon {epsilon:g}": _clusters(int(x), epsilon, shared | options)
            for name, options in ((MANY, {}), (AS_PUBLISHED, {"variant": "published"}))
            for epsilon in _OBJECTIVE_EPSILONS
        }
        return {CLUSTERS: _clusters(int(x), None, shared)} | private
    shared |= {"regularization": 0.1}
    # Figure 5 varies the server's epochs, and runs three models with several numbers of entities.
    if figure == "5":
        lines = {MF: _line(CentralNMF(40, 0.1, n_epochs=int(x), value_range=(0.0, 8.0)))}
        for n in _ENTITIES:
            for name, line in _generated(10, 40, shared | {"n_epochs": int(x)}).items():
                if name in (MEANS, ONE, AS_PUBLISHED):
                    lines[f"{name}, {n} entities"] = Line(line.model, line.guarantee, n)
        return lines
    # The horizontal axis is the total number of prototypes, which the entities share equally.
    if figure == "6":
        return {
            f"{name}, {n_factors} factors": line
            for n_factors in _FACTORS
            for name, line in _generated(max(1, int(x) // N_ENTITIES), n_factors, shared).items()
        }
    # Figures 1 and "structured" vary the number of prototypes, and Figure 7 varies the number of factors.
    n_factors, n_prototypes = (40, int(x)) if figure != "7" else (int(x), 100)
    return _generated(max(1, n_prototypes // N_ENTITIES), n_factors, shared)


def _line(model: Any) -> Line:
    # Only PrivatePrototypes with an epsilon has a guarantee, and the published variant's is nominal.
    if not isinstance(model, PrivatePrototypes) or model.epsilon is None:
        return Line(model, "none")
    return Line(model, "nominal" if model.variant == "published" else f"{model.epsilon:g}, {DELTA:g}")


def _clusters(k: int, epsilon: float | None, options: dict[str, Any]) -> Line:
    # The published variant states no delta.
    delta = None if epsilon is None or "variant" in options else DELTA
    line = _line(PrivatePrototypes(k, 1, epsilon, delta, grouping="kmeans", **options))
    return replace(line, is_clustering=True)


def _generated(n_prototypes: int, n_factors: int, shared: dict[str, Any]) -> dict[str, Line]:
    models = {
        MF: CentralNMF(n_factors, 0.1, value_range=(0.0, 8.0)),
        MEANS: PrivatePrototypes(n_prototypes, n_factors, None, grouping="kmeans", **shared),
        ROWS: PrivatePrototypes(n_prototypes, n_factors, None, grouping="exemplars", **shared),
        ONE: PrivatePrototypes(1, n_factors, 1.0, DELTA, **shared),
        MANY: PrivatePrototypes(n_prototypes, n_factors, 1.0, DELTA, grouping="kmeans", **shared),
        AS_PUBLISHED: PrivatePrototypes(n_prototypes, n_factors, 1.0, grouping="kmeans", variant="published", **shared),
    }
    return {name: _line(model) for name, model in models.items()}


def _on_data(figure: str, epsilon: float, n_exact_factors: dict[str, int], n_factors: int) -> dict[str, Line]:
    is_eicu = figure == "2"
    # A patient of eICU contributes at most two rows.
    shared: dict[str, Any] = {"value_range": (0.0, 20.0), "max_rows_per_user": 2} if is_eicu else {}
    masked = shared | ({"prototypes": "zero_filled", "max_entries": 60} if is_eicu else {})
    zero_filled = {"value_range": (0.0, 5.0), "prototypes": "zero_filled", "grouping": "kmeans"} | shared
    # Number of prototypes of each entity, and range of the values.
    k, value_range = 5 if is_eicu else 50, shared.get("value_range", (1.0, 5.0))
    models = {
        MF: CentralNMF(n_exact_factors[MF], value_range=value_range),
        INDIVIDUAL: IndividualNMF(n_exact_factors[INDIVIDUAL], value_range=value_range),
        MEANS: PrivatePrototypes(k, n_exact_factors[MEANS], None, grouping="kmeans", **masked),
        ONE: PrivatePrototypes(1, n_factors, epsilon, DELTA, **masked),
        MANY: PrivatePrototypes(k, n_factors, epsilon, DELTA, grouping="kmeans", **masked),
        AS_PUBLISHED: PrivatePrototypes(k, n_factors, epsilon, variant="published", **zero_filled),
    }
    return {name: _line(model) for name, model in models.items()}
