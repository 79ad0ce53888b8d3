"""TLS from PEM files: each error names the argument, the file and the remedy."""

import os
import ssl
from pathlib import Path
from typing import TypeAlias

from fastfedrec.core.interface import choose_words

PemPath: TypeAlias = str | os.PathLike[str]


def load_tls(purpose: ssl.Purpose, authority: PemPath, certificate: PemPath, private_key: PemPath) -> ssl.SSLContext:
    """Return a context of TLS 1.3 with the authority's certificate, and this party's certificate and key."""
    names = {
        choose_words("authority", "--authority"): authority,
        choose_words("certificate", "--certificate"): certificate,
        choose_words("private_key", "--private-key"): private_key,
    }
    for name, path in names.items():
        if not Path(path).is_file():
            raise FileNotFoundError(f"{name} must be an existing PEM file, got {os.fspath(path)!r}; correct the path")
    by, mine, key = names
    try:
        tls = ssl.create_default_context(purpose, cafile=os.fspath(authority))
    except ssl.SSLError as error:
        raise ValueError(
            f"{by} must be a PEM file with the authority's certificate, got {os.fspath(authority)!r} "
            f"({_reason(error)}); pass ca.crt, for example, and not its key"
        ) from error
    tls.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        # An empty password makes an encrypted key an error; without one OpenSSL would wait for a terminal.
        tls.load_cert_chain(certificate, private_key, password="")
    except ssl.SSLError as error:
        raise ValueError(
            f"{key} must be the unencrypted PEM key of {mine} {os.fspath(certificate)!r}, got "
            f"{os.fspath(private_key)!r} ({_reason(error)}); pass a certificate and the key it was made with"
        ) from error
    return tls


def _reason(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason in words."""
    return (error.reason or "unknown error").lower().replace("_", " ")
