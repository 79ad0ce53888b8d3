"""Wang et al. 2021 (PrivRec): Table 6, membership inference, and the same attacks on every other system.

The paper's attack sees a user's features and the ten items that the global network recommends for them.  It is compared
with two attacks that also know the user's items, with chance, and with the bound of the ledger.
"""

import functools
from typing import Any

import numpy as np

from fastfedrec.core.check import check_choice, check_instance, check_integer
from fastfedrec.core.old_names import refuse_old_names
from fastfedrec.core.randomness import Key
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.log import InteractionLog
from fastfedrec.datasets import generate_implicit
from fastfedrec.studies.files import Case, checksum, measure_cases
from fastfedrec.studies.membership.attack import membership_loss, membership_shadow
from fastfedrec.studies.report import Report, RunOptions, Study
from fastfedrec.systems.baselines.item_models import EASE
from fastfedrec.systems.baselines.popularity import DPPopularity, Popularity
from fastfedrec.systems.fedrec.plus_plus import FedRecPlusPlus
from fastfedrec.systems.fmf.fmf_ldp import FMFLDP
from fastfedrec.systems.gram.dp_gram import DPGram
from fastfedrec.systems.private_prototypes.model import PrivatePrototypes
from fastfedrec.systems.privrec.model import PrivRec

__all__ = ["attack_table", "generated_population", "privrec_targets", "system_targets"]

#: Accuracy of the attack, Table 6.
PUBLISHED = {
    "MovieLens": {
        "PrivRec": 0.65,
        "DP-PrivRec, epsilon 2": 0.51,
        "DP-PrivRec, epsilon 5": 0.54,
        "DP-PrivRec, epsilon 15": 0.55,
        "LM-PrivRec, epsilon 15": 0.59,
    },
    "Frappe": {
        "PrivRec": 0.73,
        "DP-PrivRec, epsilon 5": 0.54,
        "DP-PrivRec, epsilon 20": 0.61,
        "DP-PrivRec, epsilon 40": 0.65,
        "LM-PrivRec, epsilon 40": 0.69,
    },
}
AS_PUBLISHED, SHADOW, LOSS = "as published", "shadow models", "loss"
_FEATURES = ("gender", "age", "occupation")
_LOCATION_CONTEXTS = ("country", "city")  # contexts of Frappe that replace the user features it lacks
_SHADOW_USERS = 1000 / 6040  # the paper's share of MovieLens users for the shadow model
_QUICK_USERS = 300


def _attacks(table: Report) -> list[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """Return target, attack, result and the result's figures by name, of each row of the table."""
    return [
        (name, attack, result, {figure["figure"]: figure for figure in result["figures"]})
        for name, row in table.rows.items()
        for attack, result in row["attacks"].items()
    ]


def _compare_chance(table: Report) -> str:
    """List the attacks above chance, and the printed accuracies above the ceiling."""
    attacks = _attacks(table)
    above_chance = [f"{name} ({attack})" for name, attack, result, _ in attacks if result["beats_chance"]]
    # At chance, one in 40 of the two-sided 95% intervals is above .5.
    lines = [
        f"The whole interval is above .5 for: {'; '.join(above_chance) or 'none'}.",
        f"By chance alone {len(attacks) / 40:.1f} of {len(attacks)} intervals would be above .5, on average.",
    ]
    for name, attack, result, _ in attacks:
        published, ceiling = table.rows[name]["published"], result["ceiling_accuracy"]
        if attack == AS_PUBLISHED and published is not None and published > ceiling:
            lines.append(
                f"{name}: {published:.2f} as printed is above {ceiling:.3f}, the ceiling of any function of features "
                "and recommendations on these data."
            )
    return "\n".join(lines)


def _columns(table: Report) -> list[Any]:
    def published(row: Any) -> str:
        return f"{table.rows[row[0]]['published']:.2f}" if row[1] == AS_PUBLISHED else "-"

    return [
        ("target", "{[0]}"), ("attack", "{[1]}"), *([("published", published)] if table.table == "6" else []),
        ("accuracy", "{0[3][accuracy][value]:.3f}"), ("accuracy's ceiling", "{0[2][ceiling_accuracy]:.3f}"),
        ("AUC", "{0[3][auc][value]:.3f} [{0[3][auc][low]:.3f}, {0[3][auc][high]:.3f}]"),
        ("control", "{0[2][control_auc][value]:.3f}"), ("AUC's ceiling", "{0[2][ceiling_auc]:.3f}"),
        ("allowed", "{0[3][auc][bound]:.3f}"), ("hits at 1%", "{0[3][hits at 0.01][value]:.3f}"),
    ]  # fmt: skip


def _draw(table: Report, figure: Any) -> None:
    attacks = _attacks(table)
    figure.set_size_inches(8, 0.9 + 0.24 * len(attacks))
    panel = figure.subplots()
    for position, (_, _, _, figures) in enumerate(attacks):
        auc = figures["auc"]
        panel.plot([auc["low"], auc["high"]], [position, position], color="C0")
        panel.plot(auc["value"], position, "o", color="C0")
        panel.plot(auc["bound"], position, "|", color="C3", markersize=10)
    panel.axvline(0.5, color="black", linestyle="--", linewidth=1)
    panel.set_yticks(range(len(attacks)), [f"{name}, {attack}" for name, attack, *_ in attacks], fontsize="x-small")
    panel.invert_yaxis()
    panel.set(xlabel="AUC (bar: allowed by the guarantee)", title=table.title, xlim=(0.35, 1.02))


_LEGEND = (
    "Half of the target's users are members, so chance is .5 (a simulation).  accuracy: the users in the upper\n"
    "half of the scores are called members.  control: the same attack without the target.  ceiling: the best\n"
    "function of the attack's input, fitted to the members; 1 if no two users have equal inputs.  AUC: DeLong's\n"
    "95% interval.  allowed: the largest AUC under the (epsilon, delta) of the target's ledger against the public."
)
_REMARK = "published: accuracy as printed for {0.settings[column]}; no interval, no guarantee of its epsilon"
STUDIES = {
    "6": Study(
        "PrivRec, Table 6: membership inference", _LEGEND, _columns, _compare_chance, _draw, _attacks,
        remarks=lambda table: [_REMARK.format(table)],
    ),
    "attacks": Study("Membership inference on all systems", _LEGEND, _columns, _compare_chance, _draw, _attacks),
}  # fmt: skip


def attack_table(data: Interactions | InteractionLog | None, table: str, *, seed: int = 0, **options: Any) -> Report:
    """Attack PrivRec, DP-PrivRec and LM-PrivRec with the paper's and stronger attacks, or every system of the package.

    Parameters
    ----------
    data : Interactions, InteractionLog or None
        MovieLens 1M or 100K, or Frappe for "6"; None generates data with random features.
    table : {"6", "attacks"}
        Name of the table.
    seed : int
        Seed of every draw: the runs are simulations.
    **options : object
        Options of `RunOptions`.  `quick`: few users, rounds and models, as a test that everything runs.

    Returns
    -------
    Report
        Table with a row for each target and attack.  `rows` have for each target the "published" accuracy, or None, and
        "attacks" with `MembershipResult.to_dict` of each attack.

    References
    ----------
    .. [1] Wang, Yin, Chen, et al., "Fast-adapting and privacy-preserving federated recommender system", The VLDB
       Journal, 2021, section 4.6 and Table 6.
    """
    check_choice("table", table, tuple(STUDIES))
    key = Key.from_seed(check_integer("seed", seed, low=0, high=None))
    how = RunOptions(**options)
    column = "MovieLens"
    if data is None:
        source, population = "Generated data", generated_population(quick=how.quick)
    else:
        if table == "6" and isinstance(data, InteractionLog):
            column, data = "Frappe", _users_by_place(data)
        population = check_instance("data", data, Interactions, "use datasets.load_movielens")
        source = "The data given"
        if how.quick:
            rows = key.permutation("wang2021_attacks.quick", size=population.n_users)[:_QUICK_USERS]
            population = population.select_users(np.sort(rows))
    if table == "6":
        models = privrec_targets(population, column, quick=how.quick)
    else:
        models = system_targets(population, quick=how.quick)
    settings: dict[str, Any] = {
        "version": __version__,
        "data": checksum([population]),
        "seed": seed,
        "quick": how.quick,
    }
    cases = {}
    for name, (model, attacks) in models.items():
        target_settings = settings | {"model": repr(model), "attacks": _described(attacks)}
        measure = functools.partial(_attack, model, population, attacks, key, how.n_threads)
        cases[name] = Case(f"attack-{name.replace(' ', '-')}", target_settings, measure)
    rows_by_target = {
        name: {"published": PUBLISHED[column].get(name) if table == "6" else None, "attacks": results}
        for name, results in measure_cases(cases, how, f"Table {table}", "target").items()
    }
    described = settings | {"column": column, "models": {name: repr(model) for name, (model, _) in models.items()}}
    source += f": {population!r}, seed {seed}"
    return Report(STUDIES[table], source, described, table=table, rows=rows_by_target)


def _users_by_place(log: InteractionLog) -> Interactions:
    """Return the interactions of a log, with the most frequent country and city of each user as features."""
    if missing := [name for name in _LOCATION_CONTEXTS if name not in log.contexts]:
        raise ValueError(
            f"data must have the contexts {', '.join(_LOCATION_CONTEXTS)}, got none of {', '.join(missing)}"
        )
    locations = {}
    for name in _LOCATION_CONTEXTS:
        values, numbers = np.unique(log.contexts[name], return_inverse=True)
        # `argmax` takes the first of equally frequent values.
        counts = np.zeros((log.n_users, len(values)), dtype=np.int64)
        np.add.at(counts, (log.users, numbers), 1)
        locations[name] = values[counts.argmax(axis=1)]
    interactions = log.interactions.binarize()
    return interactions.with_features(user_features=locations, item_features=log.interactions.item_features)


def generated_population(*, quick: bool = False) -> Interactions:
    """Generate users with random features, and items with ratings of 1 to 5.

    Parameters
    ----------
    quick : bool
        Whether to generate few users.

    Returns
    -------
    Interactions
        Generated data; most of the ratings are above 3, at random.
    """
    key = Key.from_seed(0)
    matrix = generate_implicit(*((_QUICK_USERS, 100) if quick else (3000, 600)), key=key).to_scipy()
    # Ratings are uniform on 1 to 5, except that 1 is replaced by 4.
    stars = 1 + key.words("wang2021_attacks.stars", size=matrix.nnz) % np.uint64(5)
    matrix.data[:] = np.where(stars > 1, stars, 4)
    users = key.words("wang2021_attacks.users", size=3 * matrix.shape[0]).reshape(3, -1)
    return Interactions.from_scipy(matrix).with_features(
        user_features={
            name: (words % np.uint64(n)).astype(np.int64)
            for name, words, n in zip(_FEATURES, users, (2, 7, 21), strict=True)
        },
        item_features={"genres": [(f"{i % 18}",) for i in range(matrix.shape[1])]},
    )


def privrec_targets(
    data: Interactions, column: str = "MovieLens", *, quick: bool = False
) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return the targets of Table 6, each with the options of its attacks.

    Parameters
    ----------
    data : Interactions
        Data with gender, age and occupation of the users, and genres of the items; or the result of `_users_by_place`.
    column : {"MovieLens", "Frappe"}
        Column of the table.
    quick : bool
        Whether to train for a few rounds only.

    Returns
    -------
    dict of str to (PrivRec, dict)
        Model and options by attack, by the target's name in the table.
    """
    # The possible values are public, because a non-member may have a value that no member has.
    names, threshold, item_names = (
        (_LOCATION_CONTEXTS, 0.0, ["cost"]) if column == "Frappe" else (_FEATURES, 3.0, ["genres"])
    )
    features = {"user": {name: np.unique(data.user_features[name]).tolist() for name in names}, "item": item_names}
    # Equation 6 of the paper is a plain gradient step of the server.
    common: dict[str, Any] = {"features": features, "threshold": threshold, "server_optimizer": "sgd"}
    if column == "Frappe":  # as in Table 3
        common |= {"negatives": 2, "n_rounds": 10, "cohort_size": 30, "local_epochs": 20}
    private = common | {"local_epochs": 3, "server_learning_rate": 2.0, "cohort_size": "auto", "n_rounds": 25}
    # The paper's shares: a sixth of the users are the attacker's, and 80% of them train the shadow model.
    n_aside = max(round(_SHADOW_USERS * data.n_users), 8)
    n_members = min((data.n_users - n_aside) // 2, round(0.8 * n_aside), data.n_users // 4)
    private["cohort_size"] = min(400, n_members // 2)
    if quick:
        small = {"n_rounds": 2, "local_epochs": 1, "n_factors": 16, "hidden": (16,), "cohort_size": min(20, n_members)}
        common, private = common | small, private | small
    models = {"PrivRec": PrivRec(**common)}
    for name in PUBLISHED[column]:
        kind, _, epsilon = name.partition(", epsilon ")
        if kind == "DP-PrivRec":
            models[name] = PrivRec(**private, clip_norm=0.3, target_epsilon=float(epsilon))
        elif kind == "LM-PrivRec":
            models[name] = PrivRec(**private, clip_norm=2.0, target_epsilon=float(epsilon), noise="laplace")
    by_features = {"query": _by_features, "threshold": threshold}
    n_models = 1 if quick else 2
    options = {
        AS_PUBLISHED: by_features
        | {"history": False, "n_shadows": 1, "n_shadow_users": n_aside, "shadow_members": 0.8, "features": names},
        SHADOW: by_features | {"n_shadows": n_models, "features": names},
        LOSS: by_features | {"n_references": n_models, "loss": "cross_entropy"},
    }
    return {name: (model, options) for name, model in models.items()}


def system_targets(data: Interactions, *, quick: bool = False) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return every system with a released model that answers for any profile, with the options of its attacks.

    Parameters
    ----------
    data : Interactions
        Data with ratings; systems that learn no ratings use the rated items.
    quick : bool
        Whether to train for a few rounds only.

    Returns
    -------
    dict of str to (Recommender, dict)
        Model and options by attack, by the target's name.
    """
    rounds: dict[str, Any] = {"n_rounds": 2} if quick else {}
    network: dict[str, Any] = {"n_factors": 16, "hidden": (16,)} if quick else {}
    n_models = 1 if quick else 4
    start = PrivRec(n_rounds=0, popularity_epsilon=2.0, local_epochs=1, **network)
    models = {
        "FMF-LDP": FMFLDP(**rounds),
        "FMF without privacy": FMFLDP(epsilon=None, **rounds),
        "FedRec++": FedRecPlusPlus(**rounds),
        "private prototypes, epsilon 5": PrivatePrototypes(epsilon=5.0),
        "prototypes without privacy": PrivatePrototypes(epsilon=None),
        "PrivRec from private popularity, epsilon 2": start,
        # Replacing a user costs DPGram and DPPopularity twice their epsilon.
        "DPGram, epsilon 2": DPGram(1.0),
        "DP popularity, epsilon 2": DPPopularity(1.0),
        "popularity": Popularity(),
        "EASE": EASE(),
    }
    options = {SHADOW: {"n_shadows": n_models, "features": []}, LOSS: {"n_references": n_models}}
    rating_options = options | {LOSS: {"n_references": n_models, "loss": "squared"}}
    return {name: (model, rating_options if name == "FedRec++" else options) for name, model in models.items()}


def _by_features(model: PrivRec, profiles: Interactions, key: Key) -> Any:
    """Return the global network for these users, which the paper queries without fine-tuning."""
    # Fine-tuning on a user's items would hide the traces of training.
    return model.with_users(profiles)


def _attack(model: Any, data: Interactions, options: dict[str, Any], key: Key, n_threads: int) -> dict[str, Any]:
    results = {}
    for attack, attack_options in options.items():
        run_attack = membership_loss if attack == LOSS else membership_shadow
        results[attack] = run_attack(model, data, key=key, n_threads=n_threads, **attack_options).to_dict()
    return results


def _described(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the attacks as JSON values."""
    return {
        # A function is represented by its name.
        attack: {name: value.__name__ if callable(value) else value for name, value in attack_options.items()}
        for attack, attack_options in options.items()
    }


refuse_old_names(__name__, MembershipTable="studies.report.Report")
