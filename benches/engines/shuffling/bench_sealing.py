"""Reports that are sealed by a node and opened by the server; one thread."""

import tempfile
from pathlib import Path

import numpy as np

from benches.ratios import peer
from fastfedrec import Key
from fastfedrec.engines.shuffling.reports import encode_reports

N_REPORTS = 5_000
N_COORDINATES = 100_000
ROUND = {"n_coordinates": N_COORDINATES, "run": "0" * 32, "round": 0}


class Seal:
    """Sealed reports against unsealed ones, which a shuffler can read."""

    def setup(self):
        with peer("cryptography"):
            from cryptography.hazmat.primitives import serialization
            from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
        from fastfedrec.engines.shuffling.sealing import PublicKeys, ServerKeys, report_ids

        pem, key = serialization.Encoding.PEM, X25519PrivateKey.generate()
        with tempfile.TemporaryDirectory() as folder:
            private, public = Path(folder, "private"), Path(folder, "public")
            plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            private.write_bytes(key.private_bytes(pem, *plain))
            public.write_bytes(key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
            self.public, self.server = PublicKeys(public), ServerKeys(private)
        (self.name,) = self.public.names
        node_key = Key.from_seed(0)
        self.index = (node_key.words("bench.index", size=N_REPORTS) % N_COORDINATES).astype(np.int64)
        self.bit = (node_key.words("bench.bit", size=N_REPORTS) % 2).astype(np.uint8)
        self.ids = report_ids(node_key, "node", 0, N_REPORTS)
        self.batch = self.seal()
        opened = self.server.unseal(self.name, self.batch, **ROUND)
        if opened.refused or (opened.index != self.index).any() or (opened.bit != self.bit).any():
            raise AssertionError("the opened reports are not the sealed ones")

    def seal(self):
        return self.public.seal(self.name, self.index, self.bit, self.ids, **ROUND)

    def time_seal(self):
        self.seal()

    def time_unseal(self):
        self.server.unseal(self.name, self.batch, **ROUND)

    def time_encode_unsealed(self):
        encode_reports(self.index, self.bit, N_COORDINATES)

    def track_bytes_a_report(self):
        return len(self.batch) / N_REPORTS

    track_bytes_a_report.unit = "bytes"
