"""The server app.  FASTFEDREC_FOLDER names the folder of its state and of the model (default ./server)."""

import os
from pathlib import Path

from fastfedrec.engines.flower import server_app
from private_prototypes_flower.task import CATALOGUE, SEED, SYSTEM

FOLDER = Path(os.environ.get("FASTFEDREC_FOLDER", "server")).absolute()


def finish(model, engine):
    """Save the model, and print its privacy cost and its messages."""
    model.save(FOLDER / "model")
    print(model.ledger_.summary())
    print(engine.messages.summary())
    print(f"refused: {engine.rejections}")


app = server_app(SYSTEM, CATALOGUE, finish, n_nodes=2, folder=FOLDER, seed=SEED)
