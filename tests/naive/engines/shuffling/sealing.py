"""HPKE in base mode with X25519, HKDF-SHA256 and ChaCha20-Poly1305, as RFC 9180 writes it (sections 4, 5.1, 5.2)."""

import hashlib
import hmac

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

KEM = b"KEM" + (0x20).to_bytes(2, "big")
SUITE = b"HPKE" + b"".join(number.to_bytes(2, "big") for number in (0x20, 0x01, 0x03))


def labeled_extract(suite, salt, label, secret):
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + secret, hashlib.sha256)


def labeled_expand(suite, secret, label, info, length):
    info = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    out = block = b""
    for number in range(1, -(-length // 32) + 1):
        block = hmac.digest(secret, block + info + bytes([number]), hashlib.sha256)
        out += block
    return out[:length]


def shared_secret(private, public, context):
    """Return the secret of both sides; `context` is the fresh public key, then the receiver's."""
    exchanged = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    return labeled_expand(KEM, labeled_extract(KEM, b"", b"eae_prk", exchanged), b"shared_secret", context, 32)


def key_schedule(secret, info):
    """Return the key and the base nonce."""
    context = b"\0" + labeled_extract(SUITE, b"", b"psk_id_hash", b"") + labeled_extract(SUITE, b"", b"info_hash", info)
    secret = labeled_extract(SUITE, secret, b"secret", b"")
    return labeled_expand(SUITE, secret, b"key", context, 32), labeled_expand(SUITE, secret, b"base_nonce", context, 12)


def nonce_of(base_nonce, number):
    return bytes(a ^ b for a, b in zip(base_nonce, number.to_bytes(12, "big"), strict=True))


def public_of(private):
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def seal(receiver, info, message, *, fresh, aad=b"", number=0):
    """Return the fresh public key and the ciphertext of message `number`."""
    enc = public_of(fresh)
    key, base_nonce = key_schedule(shared_secret(fresh, receiver, enc + receiver), info)
    return enc + ChaCha20Poly1305(key).encrypt(nonce_of(base_nonce, number), message, aad)


def unseal(private, info, sealed, *, aad=b"", number=0):
    enc, ciphertext = sealed[:32], sealed[32:]
    key, base_nonce = key_schedule(shared_secret(private, enc, enc + public_of(private)), info)
    return ChaCha20Poly1305(key).decrypt(nonce_of(base_nonce, number), ciphertext, aad)
