"""Keys, signatures, sealed messages and shares of secrets, from the packages cryptography and pycryptodome."""

from collections.abc import Sequence
from typing import Any

from fastfedrec.engines.aggregation.plan import AggregationError

#: Number of bytes of a seed: a secret of 128 bits, the size that the shares' field holds.
SEED_BYTES = 16
KEY_BYTES, SIGNATURE_BYTES = 32, 64


def _import_cryptography() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519, x25519
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    except ImportError as error:
        raise ImportError("secure aggregation needs cryptography; install fastfedrec[aggregation]") from error
    return ed25519, x25519, ChaCha20Poly1305


class Identity:
    """The long-term signing key of a node; its public key is the name of the node."""

    def __init__(self, secret: bytes):
        ed25519, _, _ = _import_cryptography()
        self._key = ed25519.Ed25519PrivateKey.from_private_bytes(secret)
        self.name: bytes = self._key.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Return a signature of 64 bytes."""
        return self._key.sign(message)


def is_signed(name: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether a node signed a message."""
    from cryptography.exceptions import InvalidSignature

    ed25519, _, _ = _import_cryptography()
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(name).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


class Exchange:
    """A key pair of one round, from which two nodes derive a common secret."""

    def __init__(self, seed: bytes, context: bytes):
        _, x25519, _ = _import_cryptography()
        self._key = x25519.X25519PrivateKey.from_private_bytes(derive_key(seed, context))
        self.public: bytes = self._key.public_key().public_bytes_raw()

    def common(self, other_public: bytes, context: bytes) -> bytes:
        """Return the secret of 32 bytes that both nodes derive, and no other."""
        _, x25519, _ = _import_cryptography()
        try:
            shared = self._key.exchange(x25519.X25519PublicKey.from_public_bytes(other_public))
        except ValueError as error:  # a point of small order
            raise AggregationError(f"a key of a node is invalid: {error}") from None
        return derive_key(shared, context + bytes(min(self.public, other_public)) + max(self.public, other_public))


def derive_key(secret: bytes, context: bytes) -> bytes:
    """Return 32 bytes by HKDF-SHA256."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), KEY_BYTES, salt=None, info=context).derive(secret)


def seal(key: bytes, sender: bytes, message: bytes) -> bytes:
    """Encrypt a message under a key that the sender uses once."""
    # Each direction has a separate key, so the constant nonce occurs once for each key.
    _, _, cipher = _import_cryptography()
    return cipher(derive_key(key, b"seal" + sender)).encrypt(bytes(12), message, None)


def unseal(key: bytes, sender: bytes, message: bytes) -> bytes:
    """Decrypt a message, or raise if the sender did not seal it."""
    from cryptography.exceptions import InvalidTag

    _, _, cipher = _import_cryptography()
    try:
        return cipher(derive_key(key, b"seal" + sender)).decrypt(bytes(12), message, None)
    except InvalidTag:
        raise AggregationError(f"the sealed shares of node {sender.hex()[:8]} were changed on their way") from None


def _shamir() -> Any:
    try:
        from Crypto.Protocol.SecretSharing import Shamir
    except ImportError as error:
        raise ImportError("secure aggregation needs pycryptodome; install fastfedrec[aggregation]") from error
    return Shamir


def split_secret(secret: bytes, n_shares: int, threshold: int) -> list[bytes]:
    """Return Shamir shares of a seed, in the order of their numbers 1, 2, ..."""
    return [share for _, share in _shamir().split(threshold, n_shares, secret)]


def combine_shares(shares: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the seed of shares with their numbers, exactly as many as the threshold."""
    return _shamir().combine(list(shares))
