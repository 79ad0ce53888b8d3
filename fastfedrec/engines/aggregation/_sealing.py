"""Keys, signatures and sealed messages, from the package cryptography."""

import functools
from types import SimpleNamespace

from fastfedrec.engines.aggregation.plan import AggregationError

KEY_BYTES, SIGNATURE_BYTES = 32, 64


@functools.cache
def _packages() -> SimpleNamespace:
    """Return the classes of the package, which is imported on first use."""
    try:
        from cryptography import exceptions
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ed25519, x25519
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    except ImportError as error:
        raise ImportError("secure sums need cryptography; install it: pip install 'fastfedrec[aggregation]'") from error
    return SimpleNamespace(
        exceptions=exceptions, ed25519=ed25519, x25519=x25519, ChaCha20Poly1305=ChaCha20Poly1305, SHA256=hashes.SHA256,
        HKDF=HKDF,
    )  # fmt: skip


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
    key: bytes = _packages().HKDF(_packages().SHA256(), KEY_BYTES, salt=None, info=context).derive(secret)
    return key


def seal(key: bytes, sender: bytes, message: bytes) -> bytes:
    """Encrypt a message under a key that the sender uses once."""
    # Each direction has a separate key, so the constant nonce occurs once for each key.
    sealed: bytes = _packages().ChaCha20Poly1305(derive_key(key, b"seal" + sender)).encrypt(bytes(12), message, None)
    return sealed


def unseal(key: bytes, sender: bytes, message: bytes) -> bytes:
    """Decrypt a message, or raise if the sender did not seal it."""
    packages = _packages()
    try:
        opened: bytes = packages.ChaCha20Poly1305(derive_key(key, b"seal" + sender)).decrypt(bytes(12), message, None)
    except packages.exceptions.InvalidTag:
        raise AggregationError(f"the sealed shares of node {sender.hex()[:8]} were changed on their way") from None
    return opened
