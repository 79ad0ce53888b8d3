"""The server app.  FASTFEDREC_FOLDER names the folder of its state and of the model (default ./server).

FASTFEDREC_CERTIFICATES names a folder with ca.crt, server.crt and server.key, the certificates for the shuffler, and
FASTFEDREC_SERVER_KEYS the file of the private key that opens the nodes' reports.
"""

import os
from pathlib import Path

from fastfedrec.engines.flower import server_app
from fastfedrec.engines.shuffling.shuffler import ShufflerClient
from fmf_ldp_flower.task import CATALOGUE, MIN_CROWD, SEED, SHUFFLER, SYSTEM

FOLDER = Path(os.environ.get("FASTFEDREC_FOLDER", "server")).absolute()


def finish(model, engine):
    """Save the model, and print its privacy cost and its messages."""
    model.save(FOLDER / "model")
    print(model.ledger_.summary())
    print(engine.messages.summary())
    print(f"refused: {engine.rejections}")


def find_shuffler():
    """Return the client of the shuffler, with TLS if there are certificates, or None without a shuffler."""
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
    server_keys=SHUFFLER and os.environ["FASTFEDREC_SERVER_KEYS"],
)
