"""Files of a server's keys, made by openssl as on the page."""

import subprocess


def make_keys(folder, name="server"):
    """Return the files of a new private key and of its public key."""
    folder.mkdir(exist_ok=True)
    private, public = folder / f"{name}.pem", folder / f"{name}.pub.pem"
    run = {"check": True, "capture_output": True}
    subprocess.run(["openssl", "genpkey", "-algorithm", "X25519", "-out", private], **run)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], **run)
    return private, public


def join(path, *files):
    """Write one file with the keys of others, as during a rotation."""
    path.write_bytes(b"".join(file.read_bytes() for file in files))
    return path
