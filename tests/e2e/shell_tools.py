"""Replacements for `curl` and `openssl`, with the flags that docs/http.md uses.

`python shell_tools.py curl -s URL` does the same as `curl -s URL`. Unknown flags are an error, so
that the page cannot use more than these unnoticed.
"""

import base64
import socket
import sys
from pathlib import Path
from typing import Any

NAMES = ("curl", "openssl")


def curl(words: list[str]) -> bytes:
    """Send one request: -s, -i, -si, -X METHOD, -H HEADER, -d BODY (@- is stdin), -o FILE."""
    headers: dict[str, str] = {}
    method, url, body, file, shows_head = "", "", None, None, False
    while words:
        word = words.pop(0)
        match word:
            case "-s":
                pass
            case "-si" | "-i":
                shows_head = True
            case "-X":
                method = words.pop(0)
            case "-H":
                name, _, value = words.pop(0).partition(":")
                headers[name] = value.strip()
            case "-d":
                given = words.pop(0)
                body = sys.stdin.buffer.read() if given == "@-" else given.encode()
            case "-o":
                file = words.pop(0)
            case _:
                if word.startswith("-") or url:
                    raise SystemExit(f"unknown flag: {word}")
                url = word
    answer = _request(method or ("GET" if body is None else "POST"), url, headers, body)
    if file is not None:
        Path(file).write_bytes(answer[1])
        return b""
    return b"".join(answer) if shows_head else answer[1]


def _request(
    method: str, url: str, headers: dict[str, str], body: bytes | None
) -> tuple[bytes, bytes]:
    """Return head and content of the response, without a library, which would load more slowly."""
    host, _, path = url.removeprefix("http://").partition("/")
    name, _, port = host.rpartition(":")
    headers = {"Host": host, "Connection": "close", **headers}
    if body is not None:
        headers["Content-Length"] = str(len(body))
    lines = [f"{method} /{path} HTTP/1.1", *(f"{key}: {text}" for key, text in headers.items())]
    with socket.create_connection((name, int(port)), timeout=60) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + (body or b""))
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, blank, content = answer.partition(b"\r\n\r\n")
    return head + blank, content


def openssl(words: list[str]) -> bytes:
    """Generate an Ed25519 key, print its public half, sign a file, or encode stdin as base64."""
    if words == ["base64", "-A"]:
        return base64.b64encode(sys.stdin.buffer.read())
    from cryptography.hazmat.primitives import serialization as forms  # slow to import
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    def read(file: str) -> Any:
        return forms.load_pem_private_key(Path(file).read_bytes(), password=None)

    match words:
        case ["genpkey", "-algorithm", "ed25519", "-out", file]:
            key = Ed25519PrivateKey.generate()
            encoding, plain = forms.Encoding.PEM, forms.NoEncryption()
            Path(file).write_bytes(key.private_bytes(encoding, forms.PrivateFormat.PKCS8, plain))
            return b""
        case ["pkey", "-in", file, "-pubout", "-outform", "DER"]:
            form = forms.PublicFormat.SubjectPublicKeyInfo
            return bytes(read(file).public_key().public_bytes(forms.Encoding.DER, form))
        case ["pkeyutl", "-sign", "-rawin", "-inkey", file, "-in", text]:
            return bytes(read(file).sign(Path(text).read_bytes()))
    raise SystemExit(f"unknown command: {words}")


def install(directory: Path, names: tuple[str, ...]) -> None:
    """Install commands with these `names` in `directory`."""
    directory.mkdir()
    for name in names:
        command = directory / name
        quick = "-S" if name == "curl" else ""  # starts faster; only the standard library is needed
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {quick} "{__file__}" {name} "$@"\n')
        command.chmod(0o755)


if __name__ == "__main__":
    sys.stdout.buffer.write({"curl": curl, "openssl": openssl}[sys.argv[1]](sys.argv[2:]))
