"""The server: it keeps its state and the model in the folder that FASTFEDREC_FOLDER names, or in ./server.

Its certificate for the shuffler is in the folder that FASTFEDREC_CERTIFICATES names: ca.crt, server.crt, server.key.
"""

import os
from pathlib import Path

from fastfedrec.engines.flower import server_app
from fastfedrec.engines.shuffling.shuffler import ShufflerClient
from fmf_ldp_flower.task import CATALOGUE, MIN_CROWD, SEED, SHUFFLER, SYSTEM

FOLDER = Path(os.environ.get("FASTFEDREC_FOLDER", "server")).absolute()


def finish(model, engine):
    """Save the model, and say what it cost."""
    model.save(FOLDER / "model")
    print(model.ledger_.summary())
    print(engine.messages.summary())
    print(f"refused: {engine.rejections}")


def find_shuffler():
    """By TLS where there are certificates, and else on this machine."""
    if SHUFFLER is None or "FASTFEDREC_CERTIFICATES" not in os.environ:
        return SHUFFLER and ShufflerClient(SHUFFLER, name="server")
    folder = Path(os.environ["FASTFEDREC_CERTIFICATES"])
    files = {"authority": "ca.crt", "certificate": "server.crt", "private_key": "server.key"}
    return ShufflerClient(SHUFFLER, **{kind: folder / name for kind, name in files.items()})


app = server_app(
    SYSTEM,
    CATALOGUE,
    finish,
    n_nodes=2,
    folder=FOLDER,
    seed=SEED,
    shuffler=find_shuffler(),
    min_crowd=MIN_CROWD,
)
