"""A Flower app in its documented form, logistic regression in NumPy, made private for each node by two lines."""

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fastfedrec.engines.flower import private

N_NODES, N_FEATURES = 400, 20
DIRECTION = np.random.default_rng(0).normal(size=N_FEATURES)

client_app = ClientApp()
server_app = ServerApp()


def load(partition: int, n_rows: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Return the features and answers of one node, which are generated here."""
    rng = np.random.default_rng(1000 + partition)
    features = rng.normal(size=(n_rows, N_FEATURES))
    return features, (rng.random(n_rows) < 1 / (1 + np.exp(-features @ DIRECTION))).astype(float)


def accuracy(arrays: ArrayRecord, features: np.ndarray, answers: np.ndarray) -> float:
    """Return the share of right answers."""
    weights, bias = arrays.to_numpy_ndarrays()
    return float(((features @ weights + bias > 0) == answers).mean())


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model on the data of this node."""
    weights, bias = message.content["arrays"].to_numpy_ndarrays()
    features, answers = load(int(context.node_config["partition-id"]))
    for _ in range(message.content["config"]["local-epochs"]):
        errors = 1 / (1 + np.exp(-(features @ weights + bias))) - answers
        weights, bias = weights - 0.5 * features.T @ errors / len(answers), bias - 0.5 * errors.mean()
    metrics = MetricRecord({"num-examples": len(answers), "loss": float(np.abs(errors).mean())})
    content = RecordDict({"arrays": ArrayRecord([weights, np.atleast_1d(bias)]), "metrics": metrics})
    return Message(content=content, reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds, and print the accuracy on public data and the ledger."""
    strategy = FedAvg(fraction_train=0.25)
    strategy = private(
        strategy, n_nodes=400, sampling_probability=0.25, clip_norm=1.0, epsilon=4, delta=1e-5, n_rounds=15
    )
    initial, public = ArrayRecord([np.zeros(N_FEATURES), np.zeros(1)]), load(N_NODES, 2000)
    config = ConfigRecord({"local-epochs": 5})
    result = strategy.start(grid=grid, initial_arrays=initial, num_rounds=15, train_config=config)
    print(f"accuracy {accuracy(result.arrays, *public):.3f}")
    print(strategy.ledger.summary())
