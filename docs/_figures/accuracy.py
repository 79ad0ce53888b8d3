"""Plots of the accuracy of systems on their pages, from stored figures and from tables of pages."""

import json
from functools import partial
from pathlib import Path
from statistics import mean

import comparisons
from curves import Plot, draw
from tables import Table

RESULTS_FOLDER = Path(__file__).parents[1] / "reproductions"
OVER_EPSILON = "HR@10 over epsilon of the whole run, replacing a user"
CHOSEN = "PrivateRecommender"  # label of the system that it selects
MAP_DATA = "9,000 users"  # the data of the map with fits of all systems
SYSTEMS = {
    "dp-gram": ("central", "DPGram"),
    "dp-subspace": ("central", "DPSubspace"),
    "dp-fmf": ("central", "DPFMF"),
    "dp-als": ("central", "DPALS"),
    "shuffled-sketch": ("shuffle", "ShuffledSketchGram"),
    "fmf-ldp": ("local", "FMFLDP"),
    "private-recommender": ("central", CHOSEN),
}


def read_map(trust):
    """Return {system: [(epsilon, HR@10), ...]} of a trust model, with means over seeds."""
    cells = json.loads((RESULTS_FOLDER / "private-recommender-map.json").read_text())["cells"]
    cells = [cell for cell in cells if cell["trust"] == trust and cell["data"] == MAP_DATA]
    series = {}
    for cell in sorted(cells, key=lambda cell: cell["epsilon"]):
        hit_ratios = {name: mean(values["hr@10"]) for name, values in cell["systems"].items()}
        # PrivateRecommender has the hit ratio of the system that it chose in this cell.
        hit_ratios[CHOSEN] = hit_ratios[cell["choice"]["system"]]
        hit_ratios["items at random"] = hit_ratios.pop("Random")
        for name, value in hit_ratios.items():
            series.setdefault(name, []).append((cell["epsilon"], value))
    return series


def plot_map(trust, system):
    """Return the plot of a system among the systems of its trust model."""
    data = f"Generated data ({MAP_DATA}, 400 items, rows of 60), 99 other items, three seeds"
    # The curve of PrivateRecommender repeats points of others, so only its own page shows it.
    series = {name: points for name, points in read_map(trust).items() if name == system or name != CHOSEN}
    return Plot(series, system, OVER_EPSILON, data)


def plot_utility(kind):
    """Return the plot of PrivateRecommender by trust model, with models without privacy."""
    cells = json.loads((RESULTS_FOLDER / "private-recommender-utility.json").read_text())["cells"]
    series = {}
    for cell in cells:
        if cell["data"] == kind:
            name = cell["model"] if cell["epsilon"] is None else f"trust: {cell['model']}"
            series.setdefault(name, []).append((cell["epsilon"], mean(cell["hit_ratios"])))
    return Plot(series, "trust: central", OVER_EPSILON, f"{kind.capitalize()}, 99 other items")


def plot_fedrec():
    """Return the plot of errors over the number of virtual ratings, printed and measured."""
    table = Table("explanation/systems/fedrec/fedrec.md", "Accuracy")
    curves = {
        "FedRec++": table.curve("FedRec++"),
        "FedRec++, as printed": table.curve("FedRec++", part=1),
        "FedRec": table.curve("FedRec"),
        "FedRec, as printed": table.curve("FedRec", part=1),
        "BiasedMF": table.curve("BiasedMF"),
    }
    about = "MAE over rho (less is better)"
    return Plot(curves, "FedRec++", about, "MovieLens 100K, five splits", "linear", from_zero=False)


def plot_sdcf():
    """Return the plot of errors over the temperature of the noise."""
    table = Table("explanation/systems/sdcf/sdcf.md", "Accuracy")
    curves = {
        "SDCF": table.curve("SDCF"),
        "SDCF, denoised": table.curve("denoised"),
        "FedRec": table.curve("FedRec(rho=0)"),
        "BiasedMF": table.curve("BiasedMF"),
    }
    return Plot(curves, "SDCF", "MAE over temperature (less is better)", "MovieLens 100K, five splits", from_zero=False)


def plot_prototypes():
    """Return the plot of errors of messages with a guarantee and of models without."""
    page = "explanation/systems/private_prototypes/private-prototypes.md"
    table = Table(page, "Accuracy", x="epsilon", y="RMSE")
    curves = {
        "one private mean": table.curve("one mean"),
        "one private mean, refined": table.curve("the same, refined"),
        "50 private clusters": table.curve("50 private clusters"),
        "an entity alone": table.curve("IndividualNMF(10)"),
        "the mean of a user": table.curve("user mean"),
        "centralized data": table.curve("CentralNMF(20)"),
    }
    about = "RMSE over epsilon, adding a user (less is better)"
    return Plot(curves, "one private mean", about, "MovieLens 1M, ten regions, three splits", from_zero=False)


def plot_privrec():
    """Return the plot of hits with noisy rounds, and with fine-tuned private popularity."""
    table = Table("reproductions/privrec.md", "Figures 6 and 7: over epsilon")
    curves = {
        "popularity_epsilon alone, fine-tuned": table.curve("fine-tuned"),
        "rounds with noise": table.curve("MovieLens 1M: One"),
        "private popularity": table.curve("DP popularity"),
        "PrivRec by SGD, no privacy": table.curve("MovieLens 1M: One", column="none"),
    }
    about = "Hits@20 over epsilon of the run, replacing a user"
    return Plot(curves, "popularity_epsilon alone, fine-tuned", about, "MovieLens 1M, one split")


def plot_dmf():
    """Return the plot of hits over the number of receivers of a gradient."""
    table = Table("explanation/systems/dmf/dmf.md", "Accuracy", x="receivers", y="HR@10")
    curves = {
        "DMF": table.curve("DMF(walk_length=0)", "DMF()", "DMF(n_neighbors=30, walk_length=2, learning_rate=0.002)"),
        "popularity": table.curve("popularity"),
        "ImplicitALS": table.curve("ImplicitALS(32)"),
    }
    about = "HR@10 over the number of receivers of a gradient"
    return Plot(curves, "DMF", about, "MovieLens 100K, one split, all unrated items ranked", "even")


def plot_fedgnn():
    """Return the plot of Hits@k, printed and measured, with and without the paper's noise."""
    table = Table("explanation/systems/fedgnn/fedgnn.md", "Accuracy")
    curves = {
        "FedGNN as published": table.curve("as published"),
        "without noise and pseudo items": table.curve("without noise and pseudo items"),
        "as printed by PrivRec's authors": table.curve("as printed"),
    }
    return Plot(curves, "FedGNN as published", "Hits@k over k", "MovieLens 1M, one split", "linear")


def plot_shuffled():
    """Return the plot of hits on three kinds of data."""
    table = Table("explanation/systems/gram/shuffled-gram.md", "Accuracy")
    curves = {name: table.curve(name) for name in ("movies", "check-ins", "purchases")}
    return Plot(curves, "check-ins", OVER_EPSILON, "MovieLens 1M and generated data, 99 other items, three seeds")


def plot_laplace():
    """Return the plot of errors of each randomizer of ratings."""
    (_, *names), *rows = Table("reproductions/laplace-rr-svd.md", "Equal exact epsilon").rows()
    curves = {name: [(float(x), float(row[column])) for x, *row in rows] for column, name in enumerate(names)}
    about = "RMSE over exact epsilon of one rating (less is better)"
    return Plot(curves, "optimal", about, "MovieLens 100K, five splits", from_zero=False)


def plot_ncf():
    """Return the plot of hits of networks and other models, measured and printed."""
    _, *rows = Table("explanation/systems/ncf/ncf.md", "Accuracy").rows()
    dots = []
    for name, hits, _ in rows:
        label = name.strip("*")
        dots.append((label, {comparisons.PAPER if label.startswith("printed") else comparisons.OURS: float(hits)}))
    return comparisons.Dots(dots, "HR@10", from_zero=False, data="MovieLens 1M, 99 other items, one seed")


def plot_baselines():
    """Return the plot of hits of baselines."""
    _, *rows = Table("explanation/systems/baselines/baselines.md", "Accuracy").rows()
    dots = [
        (f"{name}, {'no guarantee' if epsilon == 'none' else f'epsilon {epsilon}'}", {"HR@10": float(hits)})
        for name, epsilon, hits in rows
    ]
    return comparisons.Dots(dots, "HR@10", data="MovieLens 1M, 1,000 items, 99 other items, three seeds")


# Keys are the names of pages of systems.
PLOTS = {
    "baselines": plot_baselines,
    "fedrec": plot_fedrec,
    "sdcf": plot_sdcf,
    "private-prototypes": plot_prototypes,
    "privrec": plot_privrec,
    "dmf": plot_dmf,
    "fedgnn": plot_fedgnn,
    "laplace-rr-svd": plot_laplace,
    "shuffled-gram": plot_shuffled,
    "ncf": plot_ncf,
}
PLOTS |= {page: partial(plot_map, *series) for page, series in SYSTEMS.items()}


# Plots by kind of data for the page on PrivateRecommender over epsilon.
UTILITY = {f"utility-{kind}": partial(plot_utility, kind) for kind in ("movies", "check-ins", "purchases", "catalogue")}


def plot(page):
    """Return the SVG of a page's plot, and its data set."""
    figure = (PLOTS | UTILITY)[page]()
    return draw(figure) if isinstance(figure, Plot) else comparisons.draw(figure), figure.data
