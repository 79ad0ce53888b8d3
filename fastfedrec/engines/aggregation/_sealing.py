"""Keys, signatures and sealed messages, from the package cryptography."""

import functools
import importlib
from types import SimpleNamespace
from typing import Any

from fastfedrec.engines.aggregation.plan import AggregationError

KEY_BYTES, SIGNATURE_BYTES = 32, 64
_PRIMITIVES = "hashes", "asymmetric.ed25519", "asymmetric.x25519", "ciphers.aead", "kdf.hkdf"


@functools.cache
def _packages() -> SimpleNamespace:
    """Return the modules of the package, which are imported on first use."""
    primitives = (f"hazmat.primitives.{name}" for name in _PRIMITIVES)
    try:
        modules = [importlib.import_module(f"cryptography.{name}") for name in ("exceptions", *primitives)]
    except ImportError as error:
        raise ImportError("secure sums need cryptography; install it: pip install 'fastfedrec[aggregation]'") from error
    return SimpleNamespace(**{module.__name__.rpartition(".")[2]: module for module in modules})


class Identity:
    """The long-term signing key of a node; its public key is the name of the node."""

    def __init__(self, secret: bytes):
        self._key = _packages().ed25519.Ed25519PrivateKey.from_private_bytes(secret)
        self.name: bytes = self._key.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Return a signature of 64 bytes."""
        signature: bytes = self._key.sign(message)
        return signature


# In a simulation all nodes check the same signatures.
@functools.lru_cache(maxsize=2**14)
def is_signed(name: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether a node signed a message."""
    packages = _packages()
    try:
        packages.ed25519.Ed25519PublicKey.from_public_bytes(name).verify(signature, message)
    except (packages.exceptions.InvalidSignature, ValueError):
        return False
    return True


class Exchange:
    """A key pair of one round, from which two nodes derive a common secret."""

    def __init__(self, name: bytes, seed: bytes, context: bytes):
        self._name, self._key = name, _packages().x25519.X25519PrivateKey.from_private_bytes(derive_key(seed, context))
        self.public: bytes = self._key.public_key().public_bytes_raw()

    def common(self, other: bytes, other_public: bytes, context: bytes) -> bytes:
        """Return the secret of 32 bytes that this node and another one derive, and no third."""
        try:
            shared = self._key.exchange(_packages().x25519.X25519PublicKey.from_public_bytes(other_public))
        except ValueError as error:  # a point of small order
            raise AggregationError(f"a key of a node is invalid: {error}") from None
        # With the names, a node that copies the key of another one has no mask and no seal in common with that one.
        return derive_key(shared, context + b"".join(sorted((self._name + self.public, other + other_public))))


def derive_key(secret: bytes, context: bytes) -> bytes:
    """Return 32 bytes by HKDF-SHA256."""
    key: bytes = _packages().hkdf.HKDF(_packages().hashes.SHA256(), KEY_BYTES, salt=None, info=context).derive(secret)
    return key


def seal(key: bytes, sender: bytes, message: bytes) -> bytes:
    """Encrypt a message under a key that the sender uses once."""
    sealed: bytes = _cipher(key, sender).encrypt(bytes(12), message, None)
    return sealed


def unseal(key: bytes, sender: bytes, message: bytes) -> bytes:
    """Decrypt a message, or raise if the sender did not seal it."""
    try:
        opened: bytes = _cipher(key, sender).decrypt(bytes(12), message, None)
    except _packages().exceptions.InvalidTag:
        raise AggregationError(f"the sealed shares of node {sender.hex()[:8]} were changed on their way") from None
    return opened


def _cipher(key: bytes, sender: bytes) -> Any:
    # Each direction has a separate key, so the constant nonce occurs once for each key.
    return _packages().aead.ChaCha20Poly1305(derive_key(key, b"seal" + sender))
