"""The command ``fastfedrec demo``: private training on generated data, compared, accounted for and plotted."""

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastfedrec.accounting import Ledger
from fastfedrec.accounting.views import SHORT_NAMES
from fastfedrec.cli.inputs import natural
from fastfedrec.cli.outputs import EPSILON_LEGEND, can_show_progress, describe, make_axes, missing_extra, show
from fastfedrec.core.files import check_folder
from fastfedrec.core.randomness import Key
from fastfedrec.core.text import epsilon_from_json, format_epsilon, format_table
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate
from fastfedrec.systems.baselines.popularity import Baseline, DPPopularity, Popularity, Random, split_epsilon
from fastfedrec.systems.dplcf import DPLCF
from fastfedrec.systems.fmf.fmf_ldp import FMFLDP

__all__ = ["add_demo"]

# The largest setting of the FMF-LDP paper with 1,000 items; every model runs with its default settings.
N_USERS, N_ITEMS, PRESET = 50_000, 1000, "movielens-20m"
CURVE_EVERY = 10  # the learning curve is measured on every tenth user, the table on all
METRICS = ("hr@10", "ndcg@10")
N_NEGATIVES = 99
PRIVATE, TWIN = "FMF-LDP (private)", "FMF-LDP without privacy"


def add_demo(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Describe the command to the parser of `main`."""
    command = add(
        "demo",
        _demo,
        "Train privately on generated data, compare, account, and plot.",
        ["fastfedrec demo --out demo-output"],
    )
    command.add_argument("--out", type=Path, default=Path("demo-output"), metavar="DIR", help="folder for the plot")
    command.add_argument("--seed", type=natural, metavar="N", help="simulate: take the noise from a seed")


def _demo(arguments: argparse.Namespace) -> dict[str, Any] | None:
    check_folder("--out", arguments.out)

    def tell(text: str) -> None:
        if not arguments.json:
            show(text + "\n")

    document = run_demo(arguments.out, seed=arguments.seed, tell=tell, quiet=arguments.quiet)
    return document if arguments.json else None


def run_demo(out: Path, *, seed: int | None, tell: Callable[[str], None], quiet: bool = False) -> dict[str, Any]:
    """Run the demo; `tell` gets the report piece by piece, and the same comes back as plain numbers.

    The data, the split and the negatives come from a seed in any case, because nobody's privacy rests on them.  The
    noise comes from the operating system unless a seed is given.
    """
    started = time.perf_counter()
    public_key = Key.from_seed(0 if seed is None else seed)
    noise_key = None if seed is None else public_key
    data = generate_implicit(N_USERS, N_ITEMS, key=public_key, preset=PRESET)
    tell(f"Data: {data!r}, generated (preset {PRESET!r}): no real person's")
    tell(
        f"Protocol: leave one out, {N_NEGATIVES} unseen negatives, every model with its default settings\n"
        + (
            "Noise: from the operating system's entropy; no one can repeat it"
            if seed is None
            else f"Noise: from seed {seed}: a SIMULATION, which protects nobody from whoever knows the seed"
        )
    )
    train, test = next(LeaveOneOut().split(data, key=public_key))
    comparison = _Comparison(train, test, public_key, noise_key)
    show_progress = can_show_progress(quiet)
    private = comparison.train(PRIVATE, FMFLDP(), show_progress=show_progress)
    total = private.ledger_.epsilon()
    for name, model in (
        ("Random", Random()),
        ("Popularity", Popularity()),
        ("DP popularity, central", DPPopularity(1.0)),
        ("DP popularity, local, same total", DPPopularity(total, trust="local")),
        ("DPLCF, same total", DPLCF(split_epsilon(total, data.n_items))),
    ):
        comparison.add(name, model)
    comparison.train(TWIN, FMFLDP(epsilon=None), show_progress=show_progress)

    results = comparison.results
    tell(_format_results(results))
    tell(_verdict(results, n_tested=test.n_interactions))
    tell(private.ledger_.summary() + "\n" + _plain_words(private.ledger_))
    tell(private.communication_.summary())
    plot_problem = missing_extra("matplotlib", "no plot of the learning curve")
    plot = None
    if plot_problem is None:
        plot = out / "learning-curve.png"
        out.mkdir(parents=True, exist_ok=True)
        _plot_curves(plot, comparison.curves, results, n_measured=comparison.n_measured)
    seconds = time.perf_counter() - started
    tell(plot_problem or f"Learning curve: {plot}")
    tell(f"{seconds:.0f} s in all")
    return {
        "version": __version__,
        "data": {**describe(data), "preset": PRESET},
        "noise": "entropy" if seed is None else f"seed {seed} (simulation)",
        "n_negatives": N_NEGATIVES,
        "results": results,
        "verdict": _verdict(results, n_tested=test.n_interactions),
        "privacy": private.ledger_.to_dict(),
        "communication": private.communication_.to_dict(),
        "learning_curves": {"metric": METRICS[0], "n_users": comparison.n_measured} | comparison.curves,
        "plot": None if plot is None else str(plot),
        "seconds": seconds,
    }


class _Comparison:
    """One split, one set of negatives, and the results and learning curves of every model on them."""

    def __init__(self, train: Interactions, test: Interactions, public_key: Key, noise_key: Key | None):
        self._train, self._test, self._public_key, self._noise_key = train, test, public_key, noise_key
        rows = slice(None, None, CURVE_EVERY)
        measured = [part.user_index(part.user_ids[rows]) for part in (train, test)]
        self._curve_train, self._curve_test = train.select_users(measured[0]), test.select_users(measured[1])
        self.n_measured = self._curve_test.n_users
        self.results: dict[str, dict[str, Any]] = {}
        self.curves: dict[str, list[float]] = {}

    def add(self, name: str, model: FMFLDP | Baseline, **fit_arguments: Any) -> None:
        started = time.perf_counter()
        model.fit(self._train, key=self._noise_key, **fit_arguments)
        seconds = time.perf_counter() - started
        metrics = self._measure(model, self._train, self._test, METRICS)
        self.results[name] = {
            "model": repr(model), **metrics, "epsilon": model.ledger_.to_dict()["epsilon"], "fit_seconds": seconds
        }  # fmt: skip

    def _measure(self, model: Any, train: Interactions, test: Interactions, metrics: Any) -> dict[str, float]:
        return dict(
            evaluate(
                model,
                train,
                test,
                metrics=metrics,
                candidates=Sampled(N_NEGATIVES, per="interaction"),
                key=self._public_key,
            )
        )

    def train(self, name: str, model: FMFLDP, *, show_progress: bool) -> FMFLDP:
        """As `add`, with the first metric after every round; the time of the fit includes measuring it."""
        curve = self.curves[name] = []

        def measure(model: FMFLDP, round_number: int) -> None:
            curve.append(self._measure(model, self._curve_train, self._curve_test, METRICS[:1])[METRICS[0]])

        self.add(name, model, show_progress=show_progress, callback=measure)
        return model


def _format_results(results: dict[str, dict[str, Any]]) -> str:
    rows = [
        (
            name,
            *(f"{result[metric]:.3f}" for metric in METRICS),
            *(format_epsilon(epsilon_from_json(spent)) for spent in map(result["epsilon"].get, SHORT_NAMES)),
        )
        for name, result in results.items()
    ]
    header = ("", *(metric.upper() for metric in METRICS), *(f"epsilon, {who}" for who in SHORT_NAMES.values()))
    return format_table(header, rows) + "\n" + EPSILON_LEGEND


def _verdict(results: dict[str, dict[str, Any]], *, n_tested: int) -> str:
    """Whether the private model is better than popularity and than DPLCF, by more than chance explains."""
    metric = METRICS[0]
    private = results[PRIVATE][metric]
    # Two standard errors of a difference of two shares, which is less where the same users favour both models.
    margin = 2 * math.sqrt(2 * 0.25 / n_tested)
    sentences = []
    for name in ("Popularity", "DPLCF, same total"):
        other = results[name][metric]
        if abs(private - other) <= margin:
            relation = "does not clearly differ from"
        else:
            relation = "beats" if private > other else "does NOT beat"
        sentences.append(f"{PRIVATE} {relation} {name}: {metric.upper()} {private:.3f} against {other:.3f}.")
    return "\n".join(sentences)


def _plain_words(ledger: Ledger) -> str:
    alone, hidden = (format_epsilon(ledger.epsilon(view)) for view in ("server", "shuffled_server"))
    return (
        f"In plain words: {alone} nats bound nothing useful against a server that knows who sent which message.\n"
        f"What hides a user here is the crowd: an honest proxy that drops senders and shuffles leaves {hidden} nats."
    )


def _plot_curves(
    path: Path, curves: dict[str, list[float]], results: dict[str, dict[str, Any]], *, n_measured: int
) -> None:
    from matplotlib.ticker import MaxNLocator

    figure, axes = make_axes()
    for name, values in curves.items():
        axes.plot(range(1, len(values) + 1), values, marker="o", markersize=3, label=name)
    for name, style in (("Popularity", "--"), ("Random", ":")):
        axes.axhline(results[name][METRICS[0]], color="black", linestyle=style, linewidth=1, label=name)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("round")
    axes.set_ylabel(METRICS[0].upper())
    axes.set_ylim(bottom=0)
    axes.set_title(f"Generated data; the curves are measured on {n_measured:,} users", fontsize="medium")
    axes.legend()
    figure.savefig(path, dpi=150)
