"""The server: it keeps its state and the model in the folder that FASTFEDREC_FOLDER names, or in ./server."""

import os
from pathlib import Path

from fastfedrec.engines.flower import server_app
from fmf_ldp_flower.task import CATALOGUE, SEED, SYSTEM

FOLDER = Path(os.environ.get("FASTFEDREC_FOLDER", "server")).absolute()


def finish(model, engine):
    """Save the model, and say what it cost."""
    model.save(FOLDER / "model")
    print(model.ledger_.summary())
    print(engine.messages.summary())
    print(f"refused: {engine.rejections}")


app = server_app(SYSTEM, CATALOGUE, finish, n_nodes=2, folder=FOLDER, seed=SEED)
