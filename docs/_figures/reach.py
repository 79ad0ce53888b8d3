"""What a system reaches: the plot of its page, from figures that are kept, and from tables of pages."""

import json
from functools import partial
from pathlib import Path
from statistics import mean

import beside
from curves import Plot, draw
from tables import Table

KEPT = Path(__file__).parents[1] / "reproductions"
OVER_EPSILON = "HR@10 over epsilon of the whole run, replacing a user"
MAP_SIZE = {"n_users": 9000, "n_items": 400, "row_length": 60.0}  # where all systems of a trust model were fitted
SYSTEMS = {
    "dp-gram": ("central", "DPGram"),
    "dp-subspace": ("central", "DPSubspace"),
    "dp-fmf": ("central", "DPFMF"),
    "dp-als": ("central", "DPALS"),
    "shuffled-sketch": ("shuffle", "ShuffledSketchGram"),
    "fmf-ldp": ("local", "FMFLDP"),
    "private-recommender": ("central", "what it takes"),
}


def read_map(trust):
    """HR@10 over epsilon by system: means over seeds."""
    cells = json.loads((KEPT / "private-recommender-map.json").read_text())["cells"]
    cells = [cell for cell in cells if cell["trust"] == trust and all(cell[k] == v for k, v in MAP_SIZE.items())]
    series = {}
    for cell in sorted(cells, key=lambda cell: cell["epsilon"]):
        found = {name: mean(values) for name, values in cell["systems"].items()}
        found["what it takes"] = found[cell["choice"]["system"]]
        found["items at random"] = found.pop("Random")
        for name, value in found.items():
            series.setdefault(name, []).append((cell["epsilon"], value))
    return series


def of_map(trust, own):
    """The plot of a system among those of its trust model."""
    sizes = f"{MAP_SIZE['n_users']:,} users, {MAP_SIZE['n_items']} items, rows of {MAP_SIZE['row_length']:g}"
    data = f"Generated data ({sizes}), 99 other items, three seeds"
    series = {name: points for name, points in read_map(trust).items() if name == own or name != "what it takes"}
    return Plot(series, own, OVER_EPSILON, data)


def of_utility(kind):
    """HR@10 of PrivateRecommender over epsilon by trust model, beside models without privacy."""
    cells = json.loads((KEPT / "private-recommender-utility.json").read_text())["cells"]
    series = {}
    for cell in cells:
        if cell["data"] == kind:
            name = cell["model"] if cell["epsilon"] is None else f"trust: {cell['model']}"
            series.setdefault(name, []).append((cell["epsilon"], mean(cell["hit_ratios"])))
    return Plot(series, "trust: central", OVER_EPSILON, f"{kind.capitalize()}, 99 other items")


def of_fedrec():
    """Errors by the number of virtual ratings, as printed and here."""
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


def of_sdcf():
    """Errors by the temperature of the noise."""
    table = Table("explanation/systems/sdcf/sdcf.md", "Accuracy")
    curves = {
        "SDCF": table.curve("SDCF"),
        "SDCF, denoised": table.curve("denoised"),
        "FedRec": table.curve("FedRec(rho=0)"),
        "BiasedMF": table.curve("BiasedMF"),
    }
    return Plot(curves, "SDCF", "MAE over temperature (less is better)", "MovieLens 100K, five splits", from_zero=False)


def of_prototypes():
    """Errors of messages with a guarantee, and of models without."""
    page = "explanation/systems/private_prototypes/private-prototypes.md"
    table = Table(page, "Accuracy", x="epsilon", y="RMSE")
    curves = {
        "one private mean": table.curve("one mean"),
        "one private mean, refined": table.curve("the same, refined"),
        "50 private clusters": table.curve("50 private clusters"),
        "an entity alone": table.curve("IndividualNMF(10)"),
        "the mean of a user": table.curve("user mean"),
        "all data in one place": table.curve("CentralNMF(20)"),
    }
    about = "RMSE over epsilon, adding a user (less is better)"
    return Plot(curves, "one private mean", about, "MovieLens 1M, ten regions, three splits", from_zero=False)


def of_privrec():
    """Hits of rounds with noise, and of popularity with noise, fine-tuned."""
    table = Table("reproductions/privrec.md", "Figures 6 and 7: over epsilon")
    curves = {
        "popularity_epsilon alone, fine-tuned": table.curve("fine-tuned"),
        "rounds with noise": table.curve("MovieLens 1M: One"),
        "private popularity": table.curve("DP popularity"),
        "PrivRec by SGD, no privacy": table.curve("MovieLens 1M: One", column="none"),
    }
    about = "Hits@20 over epsilon of the run, replacing a user"
    return Plot(curves, "popularity_epsilon alone, fine-tuned", about, "MovieLens 1M, one split")


def of_dmf():
    """Hits by how many hear a gradient."""
    table = Table("explanation/systems/dmf/dmf.md", "Accuracy", x="heard by", y="HR@10")
    curves = {
        "DMF": table.curve("DMF(walk_length=0)", "DMF()", "DMF(n_neighbors=30, walk_length=2, learning_rate=0.002)"),
        "popularity": table.curve("popularity"),
        "ImplicitALS": table.curve("ImplicitALS(32)"),
    }
    about = "HR@10 over the number of users who hear a gradient"
    return Plot(curves, "DMF", about, "MovieLens 100K, one split, all unrated items ranked", "even")


def of_fedgnn():
    """Hits at k, as printed and here, with the noise of the paper and without."""
    table = Table("explanation/systems/fedgnn/fedgnn.md", "Accuracy")
    curves = {
        "FedGNN as published": table.curve("as published"),
        "without noise and pseudo items": table.curve("without noise and pseudo items"),
        "as printed by PrivRec's authors": table.curve("as printed"),
    }
    return Plot(curves, "FedGNN as published", "Hits@k over k", "MovieLens 1M, one split", "linear")


def of_laplace():
    """Errors of each randomizer of ratings."""
    (_, *names), *rows = Table("reproductions/laplace-rr-svd.md", "Equal exact epsilon").rows()
    curves = {name: [(float(x), float(row[place])) for x, *row in rows] for place, name in enumerate(names)}
    about = "RMSE over exact epsilon of one rating (less is better)"
    return Plot(curves, "optimal", about, "MovieLens 100K, five splits", from_zero=False)


def of_ncf():
    """Hits of networks and others, measured and printed."""
    _, *rows = Table("explanation/systems/ncf/ncf.md", "Accuracy").rows()
    dots = []
    for name, hits, _ in rows:
        label = name.strip("*")
        dots.append((label, {beside.PAPER if label.startswith("printed") else beside.OURS: float(hits)}))
    return beside.Dots(dots, "HR@10", from_zero=False, data="MovieLens 1M, 99 other items, one seed")


def of_baselines():
    """Hits of what a system must beat."""
    _, *rows = Table("explanation/systems/baselines/baselines.md", "Accuracy").rows()
    dots = [
        (f"{name}, {'no guarantee' if epsilon == 'none' else f'epsilon {epsilon}'}", {"HR@10": float(hits)})
        for name, epsilon, hits in rows
    ]
    return beside.Dots(dots, "HR@10", data="MovieLens 1M, 1,000 items, 99 other items, three seeds")


PLOTS = {
    "baselines": of_baselines,
    "fedrec": of_fedrec,
    "sdcf": of_sdcf,
    "private-prototypes": of_prototypes,
    "privrec": of_privrec,
    "dmf": of_dmf,
    "fedgnn": of_fedgnn,
    "laplace-rr-svd": of_laplace,
    "ncf": of_ncf,
}
PLOTS |= {page: partial(of_map, *of) for page, of in SYSTEMS.items()}


# Kinds of data of the page on PrivateRecommender over epsilon.
UTILITY = {f"utility-{kind}": partial(of_utility, kind) for kind in ("movies", "check-ins", "purchases", "catalogue")}


def plot(page):
    """The plot of a page, and what it is of."""
    found = (PLOTS | UTILITY)[page]()
    return draw(found) if isinstance(found, Plot) else beside.draw(found), found.data
