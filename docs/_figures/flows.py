"""Declarations of the messages in each system, for the figures of `draw.py`.

A lane is a party, with its data or its trust.  A message is EXACT (its receiver must be trusted with it), PROTECTED (by
noise or randomized response, with a guarantee against its readers), MASKED (it reveals no information without the
masks) or PUBLIC.
"""

from dataclasses import dataclass

EXACT, PROTECTED, MASKED, PUBLIC = "exact", "protected", "masked", "public"


@dataclass(frozen=True)
class Send:
    """A message from one lane to another."""

    sender: str
    receiver: str
    content: str
    kind: str


@dataclass(frozen=True)
class Do:
    """A local step of a party, without a message."""

    actor: str
    action: str


@dataclass(frozen=True)
class Repeat:
    """Steps that are repeated, with the number of times."""

    times: str
    steps: tuple


@dataclass(frozen=True)
class Flow:
    """Lanes, from left to right, and steps, from top to bottom."""

    lanes: dict
    steps: tuple


# Parts that several flows share.
_TRUSTED = {"device": "holds its row", "server": "trusted: adds noise", "everyone": "sees the model"}
_SCORES = Do("device", "scores with its own row, and sends nothing")
_MEAN = (
    Send("device", "server", "its row, of norm 1", EXACT),
    Do("server", "adds up, and adds noise: the mean"),
)
_WEIGHTS = (Send("server", "everyone", "factors of EASE's weights", PROTECTED), _SCORES)


def _make_central_flow(learning):
    """Return the flow of a server that learns from the items of all users."""
    steps = (
        Send("user", "server", "all items", EXACT),
        Do("server", learning),
        Send("server", "user", "recommendations", EXACT),
    )
    return Flow({"user": "", "server": "trusted with all data"}, steps)


# Lanes in the order of the figure; texts are folded to the width of a phone.
FLOWS = {
    "dp-gram": Flow(
        _TRUSTED,
        (
            *_MEAN,
            Send("server", "device", "the mean", PROTECTED),
            Send("device", "server", "products of all pairs of its row, of norm 1", EXACT),
            Do("server", "adds up, adds noise"),
            Repeat(
                "4 rounds, or 2 and a repeated mean",
                (
                    Send("server", "device", "the mean, and 10 to 40 columns", PROTECTED),
                    Send("device", "server", "products of its row with the columns, of norm 1", EXACT),
                    Do("server", "adds up, adds noise, pools them with the pairs"),
                ),
            ),
            Send("server", "device", "models to compare", PROTECTED),
            Send("device", "server", "differences of hits, of norm 1", EXACT),
            Do("server", "adds up, adds noise, selects popularity or a personal model"),
            *_WEIGHTS,
        ),
    ),
    "dp-subspace": Flow(
        _TRUSTED,
        (
            *_MEAN,
            Repeat(
                "3 rounds, or 2 and a repeated mean",
                (
                    Send("server", "device", "the mean, and 64 columns, at first random", PROTECTED),
                    Send("device", "server", "products of its row with the columns, of norm 1", EXACT),
                    Do("server", "adds up, adds noise: the strongest directions are the next columns"),
                ),
            ),
            Send("server", "device", "models to compare", PROTECTED),
            Send("device", "server", "differences of hits, of norm 1", EXACT),
            Do("server", "adds up, adds noise, selects popularity or a personal model"),
            *_WEIGHTS,
        ),
    ),
    "shuffled-sketch": Flow(
        {"device": "randomizes", "shuffler": "trusted to hide senders", "server": "not trusted", "everyone": ""},
        (
            Do("device", "rotates its row, draws positions, randomizes its answers"),
            Repeat(
                "2 rounds: few reports about items, then pairs",
                (
                    Send("device", "shuffler", "reports of 33 bits, each with epsilon_0", PROTECTED),
                    Send("shuffler", "server", "all users' reports, in random order", PROTECTED),
                ),
            ),
            Do("server", "adds up signs: a noisy matrix of pairs; selects popularity or a personal model"),
            *_WEIGHTS,
        ),
    ),
    "shuffled-gram": Flow(
        {"device": "adds fakes", "shuffler": "trusted with the data", "server": "not trusted", "everyone": ""},
        (
            Repeat(
                "3 or 4 rounds: about lengths of rows, items, and pairs",
                (
                    Send("device", "shuffler", "its cells and fake messages, or reports", EXACT),
                    Send("shuffler", "server", "all users' messages, in random order", PROTECTED),
                    Do("server", "counts or adds up; selects the next messages"),
                ),
            ),
            Do("server", "selects popularity or a personal model"),
            *_WEIGHTS,
        ),
    ),
    "dp-fmf": Flow(
        _TRUSTED,
        (
            Repeat(
                "10 rounds",
                (
                    Send("server", "everyone", "item factors V", PROTECTED),
                    Do("device", "solves for its own factors x"),
                    Send("device", "server", "its gradient of V, of norm 1", EXACT),
                    Do("server", "adds up, adds noise, takes a step"),
                ),
            ),
            Do("device", "scores with x'v, and sends nothing"),
        ),
    ),
    "dp-als": Flow(
        _TRUSTED,
        (
            Send("device", "server", "a 1 for each of at most max_items items", EXACT),
            Do("server", "adds up, and adds noise: the rare items"),
            Repeat(
                "power iterations, then least squares",
                (
                    Send("server", "everyone", "item factors V", PROTECTED),
                    Send("device", "server", "u and uu' at its rarest items, u of norm at most 1", EXACT),
                    Do("server", "adds up, adds noise, solves for V"),
                ),
            ),
            Do("device", "scores with u'v, and sends nothing"),
        ),
    ),
    "fmf-ldp": Flow(
        {"device": "randomizes", "shuffler": "on request", "server": "not trusted"},
        (
            Repeat(
                "each round",
                (
                    Send("server", "device", "item factors V", PROTECTED),
                    Do("device", "solves for x, draws n_reports coordinates of its gradient"),
                    Send("device", "shuffler", "a random bit about each, with epsilon", PROTECTED),
                    Send("shuffler", "server", "bits, without senders", PROTECTED),
                    Do("server", "estimates the mean gradient, takes steps"),
                ),
            ),
            Do("device", "scores with x'v, and sends nothing"),
        ),
    ),
    "private-prototypes": Flow(
        {"user": "of one entity", "entity": "trusted: adds noise", "server": "not trusted"},
        (
            Send("user", "entity", "its ratings", EXACT),
            Do("entity", "sums rows by groups, adds noise"),
            Send("entity", "server", "noisy prototypes, once", PROTECTED),
            Do("server", "factorises all prototypes"),
            Send("server", "entity", "item factors", PROTECTED),
            Do("entity", "solves for its own users' factors"),
            Send("entity", "user", "predictions", EXACT),
        ),
    ),
    "privrec": Flow(
        {"device": "trains", "server": "trusted: adds noise", "everyone": "sees the model"},
        (
            Repeat(
                "each round, a secret cohort",
                (
                    Send("server", "device", "the network's parameters", PROTECTED),
                    Do("device", "trains on its own items, clips its change"),
                    Send("device", "server", "the update, of norm at most S", EXACT),
                    Do("server", "adds up, adds noise, takes a step"),
                ),
            ),
            Send("server", "everyone", "the network's parameters", PROTECTED),
            Do("device", "fine-tunes on its own items, and sends nothing"),
        ),
    ),
    "laplace-rr-svd": Flow(
        {"device": "randomizes", "server": "not trusted", "everyone": "sees the model"},
        (
            Do("device", "randomizes each rating by a channel, once"),
            Send("device", "server", "the set of rated items (hide_items hides it)", EXACT),
            Send("device", "server", "a report of each rating, with epsilon", PROTECTED),
            Do("server", "decodes; fits biases, and factors if they help"),
            Send("server", "everyone", "mean, biases, factors", PROTECTED),
        ),
    ),
    "private-recommender": Flow(
        {"you": "public numbers", "advice": "accountants, sweeps", "users": "by trust model", "ledger": "the cost"},
        (
            Send("you", "advice", "users, items, epsilon, trust", PUBLIC),
            Do("advice", "computes the settings within epsilon, and the accuracy of each"),
            Send("advice", "ledger", "the choice and its reason", PUBLIC),
            Send("advice", "users", "messages of the selected system, as on its page", PUBLIC),
            Send("users", "ledger", "every event, before it happens", PUBLIC),
            Send("users", "you", "a model, with its total epsilon", PROTECTED),
        ),
    ),
    "fedrec": Flow(
        {"device": "hides its rated items", "denoiser": "must not collude", "server": "must not collude"},
        (
            Repeat(
                "each round",
                (
                    Send("server", "device", "item factors V", PUBLIC),
                    Send("device", "server", "gradient + mask, of rated and of other items", MASKED),
                    Send("device", "denoiser", "the mask; for other items gradient + mask", MASKED),
                    Send("denoiser", "server", "the sum", MASKED),
                    Do("server", "takes a step with the difference, the exact sum over raters"),
                ),
            ),
        ),
    ),
    "sdcf": Flow(
        {"device": "randomizes twice", "server": "not trusted"},
        (
            Do("device", "draws a first answer for each item, once"),
            Repeat(
                "each round",
                (
                    Send("server", "device", "item factors V", PUBLIC),
                    Send("device", "server", "the items of its message", PROTECTED),
                    Send("device", "server", "their gradients with noise: no guarantee", EXACT),
                    Do("server", "takes the mean as its step"),
                ),
            ),
        ),
    ),
    "dmf": Flow(
        {"user": "there is no server", "neighbours": "not trusted"},
        (
            Repeat(
                "each round",
                (
                    Do("user", "takes steps on its items and on sampled items"),
                    Send("user", "neighbours", "a gradient of each of these items", EXACT),
                    Do("neighbours", "change their factors by it"),
                ),
            ),
            Do("user", "scores with its model"),
        ),
    ),
    "fedgnn": Flow(
        {"device": "has its graph", "server": "trusted: adds noise", "everyone": "sees the model"},
        (
            Repeat(
                "each round, a secret cohort",
                (
                    Send("server", "device", "embeddings of items, W, a", PROTECTED),
                    Do("device", "computes its user's embedding, clips its gradient"),
                    Send("device", "server", "the gradient, of norm at most clip_norm", EXACT),
                    Do("server", "adds up, adds noise, takes a step"),
                ),
            ),
            Send("server", "everyone", "embeddings of items, W, a", PROTECTED),
            Do("device", "scores on its own graph, and sends nothing"),
        ),
    ),
    "ncf": _make_central_flow("trains embeddings and a network"),
    "baselines": _make_central_flow("counts, solves or trains"),
}
