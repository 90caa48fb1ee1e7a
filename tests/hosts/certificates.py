"""Certificates and keys of tests, made by openssl."""

import pathlib
import subprocess

KEY = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes".split()


def certify(folder, name, names=None):
    """Makes NAME.pem, self-signed for `names` (by default DNS:NAME), and NAME.key; returns both paths."""
    certificate, key = (pathlib.Path(folder, f"{name}.{kind}") for kind in ("pem", "key"))
    subject = ["-subj", f"/CN={name}", "-addext", f"subjectAltName={names or f'DNS:{name}'}"]
    command = [*KEY, "-x509", "-days", "2", *subject, "-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key
