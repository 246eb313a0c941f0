"""Ed25519 keys in the text forms of signed notes; they live in files, never in the database.

public   <name>+<id in hex>+<base64(0x01 ‖ public key)>
private  PRIVATE+KEY+<name>+<id in hex>+<base64(0x01 ‖ seed)>
id       the first 4 bytes of SHA-256(<name> ‖ 0x0A ‖ 0x01 ‖ public key)
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from mempair_db import errors, settings

ED25519: Final = b"\x01"
PRIVATE: Final = "PRIVATE+KEY+"
FILE: Final = "signing.key"


@dataclass(frozen=True)
class PublicKey:
    """What others need to check a signature."""

    name: str
    raw: bytes

    @property
    def id(self) -> bytes:
        """Four bytes that tell keys of one name apart."""
        return hashlib.sha256(self.name.encode() + b"\n" + ED25519 + self.raw).digest()[:4]

    def __str__(self) -> str:
        """Return the text form."""
        return f"{self.name}+{self.id.hex()}+{base64.b64encode(ED25519 + self.raw).decode()}"

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """Read the text form."""
        name, key_id, raw = _parse(text.strip())
        key = cls(name, raw)
        if key.id != key_id:
            raise errors.InvalidKey(
                f"The id in {text.strip()!r} is not the key's.", remedy="Copy the whole line again."
            )
        return key

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether this key signed the message."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class SigningKey:
    """What signs. Its seed is not shown."""

    public: PublicKey
    private: Ed25519PrivateKey

    @classmethod
    def new(cls, name: str) -> SigningKey:
        """Make a key."""
        return cls._of(check_name(name), Ed25519PrivateKey.generate())

    @classmethod
    def parse(cls, text: str) -> SigningKey:
        """Read the text form."""
        if not text.startswith(PRIVATE):
            raise errors.InvalidKey("This is no private key.", remedy="`mempair keys new` makes one.")
        name, key_id, seed = _parse(text.strip().removeprefix(PRIVATE))
        key = cls._of(name, Ed25519PrivateKey.from_private_bytes(seed))
        if key.public.id != key_id:
            raise errors.InvalidKey("The id in the file is not the key's.", remedy="Restore the file from its backup.")
        return key

    @classmethod
    def _of(cls, name: str, private: Ed25519PrivateKey) -> SigningKey:
        return cls(PublicKey(name, private.public_key().public_bytes_raw()), private)

    def text(self) -> str:
        """Return the text form, which is a secret."""
        seed = base64.b64encode(ED25519 + self.private.private_bytes_raw()).decode()
        return f"{PRIVATE}{self.public.name}+{self.public.id.hex()}+{seed}"

    def sign(self, message: bytes) -> bytes:
        """Return the signature, 64 bytes."""
        return self.private.sign(message)


def default_path() -> Path:
    """Where the key is unless `--key` says otherwise."""
    return settings.home() / "keys" / FILE


def create(name: str, path: Path) -> SigningKey:
    """Make a key and keep it in a file only its owner can read; never over an existing one."""
    key = SigningKey.new(name)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(key.text() + "\n")
    except OSError as error:
        if path.exists():
            raise errors.InvalidKey(
                f"There is already a key in {path}.",
                remedy="Signatures made with it stay valid only with its public key: choose another file with --key.",
            ) from None
        why = "It is no folder" if isinstance(error, FileExistsError) else error.strerror
        raise errors.InvalidKey(f"{why}: {error.filename}.", remedy="Choose another file with --key.") from error
    return key


def load(path: Path) -> SigningKey:
    """Read the key; refuse a file that others can read."""
    try:
        found = path.stat()
        text = path.read_text(encoding="ascii")
    except FileNotFoundError:
        raise errors.InvalidKey(f"There is no key in {path}.", remedy="Make one: `mempair keys new`.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise errors.InvalidKey(f"{path}: {error}.", remedy="Choose another file with --key.") from error
    if os.name == "posix" and others_can_read(found.st_mode, found.st_uid, os.geteuid()):
        raise errors.InvalidKey(f"Others can read {path}.", remedy=f"chmod 600 {path}")
    return SigningKey.parse(text)


def others_can_read(mode: int, owner: int, reader: int) -> bool:
    """Whether a file is open to others. What root hands to our group alone, as Kubernetes does a secret, is not."""
    handed = owner == 0 and reader != 0
    return bool(mode & (stat.S_IRWXO | (stat.S_IWGRP | stat.S_IXGRP if handed else stat.S_IRWXG)))


def check_name(name: str) -> str:
    """Return a name that fits into a signature line: not empty, no spaces, no '+'."""
    if not name or "+" in name or any(c.isspace() or not c.isprintable() for c in name):
        raise errors.InvalidKey(
            f"{name!r} cannot be a key's name.", remedy="Use no spaces and no '+', for example db.example.org."
        )
    return name


def _parse(text: str) -> tuple[str, bytes, bytes]:
    try:
        name, key_id, encoded = text.split("+", 2)
        data = base64.b64decode(encoded, validate=True)
        identity = bytes.fromhex(key_id)
    except (ValueError, binascii.Error):
        raise errors.InvalidKey("It does not have the form <name>+<id>+<base64>.") from None
    if data[:1] != ED25519 or len(data) != 33:
        raise errors.InvalidKey("It is no Ed25519 key.")
    return check_name(name), identity, data[1:]
