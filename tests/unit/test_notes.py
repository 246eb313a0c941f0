"""Signed notes, checkpoints and key files."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path

import pytest

from mempair_db import errors
from mempair_db.ledger import keys, notes
from mempair_db.ledger.keys import PublicKey, SigningKey
from mempair_db.ledger.notes import Checkpoint

KEY = SigningKey.new("db.example.org")
OTHER = SigningKey.new("db.example.org")
CHECKPOINT = Checkpoint("db.example.org/1/churn", 7, hashlib.sha256(b"root").digest())


def test_a_note_has_the_form_that_log_tools_read() -> None:
    note = notes.sign("first\nsecond\n", KEY)
    text, signature = note.split("\n\n")
    assert text == "first\nsecond"
    dash, name, encoded = signature.rstrip("\n").split(" ")
    assert (dash, name) == ("—", "db.example.org")
    data = base64.b64decode(encoded)
    assert len(data) == 4 + 64
    assert data[:4] == hashlib.sha256(b"db.example.org\n\x01" + KEY.public.raw).digest()[:4]


def test_the_example_of_the_format_verifies() -> None:
    """A key and a note that the format's first implementation publishes as its example."""
    key = PublicKey.parse("PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")
    note = (
        "If you think cryptography is the answer to your problem,\n"
        "then you don't know what your problem is.\n"
        "\n"
        "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
    )
    assert notes.open_note(note, [key]).startswith("If you think")


def test_a_changed_text_is_found_out() -> None:
    note = notes.sign("7 entries\n", KEY)
    assert notes.open_note(note, [OTHER.public, KEY.public]) == "7 entries\n"
    with pytest.raises(errors.VerificationFailed, match="changed after signing"):
        notes.open_note(note.replace("7 entries", "8 entries"), [KEY.public])


def test_a_key_of_the_same_name_is_not_enough() -> None:
    with pytest.raises(errors.VerificationFailed, match="No signature by a key we trust"):
        notes.open_note(notes.sign("text\n", OTHER), [KEY.public])


def test_a_second_signature_by_somebody_else_does_no_harm() -> None:
    note = notes.sign("text\n", KEY) + notes.sign("text\n", OTHER).split("\n\n")[1]
    assert notes.open_note(note, [KEY.public]) == notes.open_note(note, [OTHER.public]) == "text\n"


@pytest.mark.parametrize(
    "note",
    ["", "text\n", "text\n\n", "text\n\n— name\n", "text\n\n- name AAAA\n", "text\n\n— name !!\n", "t\n\n— n AA==\n"],
)
def test_malformed_notes_are_refused(note: str) -> None:
    with pytest.raises(errors.VerificationFailed):
        notes.open_note(note, [KEY.public])


@pytest.mark.parametrize("text", ["no newline", "a tab\t\n", "a null\x00\n"])
def test_texts_that_a_note_cannot_hold_are_not_signed(text: str) -> None:
    with pytest.raises(ValueError, match="newline"):
        notes.sign(text, KEY)


def test_checkpoints_come_back_as_they_were() -> None:
    assert Checkpoint.open(notes.sign(CHECKPOINT.text(), KEY), [KEY.public]) == CHECKPOINT


@pytest.mark.parametrize(
    "text", ["origin\n", "origin\nseven\nAAAA\n", "origin\n07\n{root}\n", "origin\n-1\n{root}\n", "o\n1\nAAAA\n"]
)
def test_signed_texts_that_are_no_checkpoints_are_refused(text: str) -> None:
    text = text.replace("{root}", base64.b64encode(CHECKPOINT.root).decode())
    with pytest.raises(errors.VerificationFailed, match="no checkpoint"):
        Checkpoint.open(notes.sign(text, KEY), [KEY.public])


def test_an_origin_is_one_line_whatever_the_model_is_called() -> None:
    origin = notes.origin(KEY.public, 3, "a/b\n— x +é")
    assert origin == "db.example.org/3/a%2Fb%0A%E2%80%94%20x%20%2B%C3%A9"


def test_a_key_file_is_private_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "signing.key"
    key = keys.create("db.example.org", path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert keys.load(path).public == key.public
    with pytest.raises(errors.InvalidKey, match="already a key"):
        keys.create("db.example.org", path)
    assert keys.load(path).public == key.public


@pytest.mark.skipif(os.name != "posix", reason="only POSIX has these permissions")
def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    keys.create("db.example.org", path)
    path.chmod(0o640)
    with pytest.raises(errors.InvalidKey, match="chmod 600"):
        keys.load(path)


def test_the_private_key_is_shown_nowhere() -> None:
    secret = KEY.text().split("+", 4)[4].strip()  # base64 may hold a "+" too
    assert len(secret) > 40
    assert secret not in repr(KEY) + str(KEY.public) + notes.sign("text\n", KEY)


@pytest.mark.parametrize("name", ["", "two words", "a+b", "tab\t", "line\n"])
def test_names_that_break_the_signature_line_are_refused(name: str) -> None:
    with pytest.raises(errors.InvalidKey):
        SigningKey.new(name)


@pytest.mark.parametrize(
    "text",
    ["", "name", "name+00000000+AAAA", f"other+{str(KEY.public).split('+', 1)[1]}", "n+zz+!!"],
    ids=["empty", "a name", "no key", "another name", "no numbers"],
)
def test_texts_that_are_no_public_keys_are_refused(text: str) -> None:
    with pytest.raises(errors.InvalidKey):
        PublicKey.parse(text)


def test_a_missing_key_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidKey, match="mempair keys new"):
        keys.load(tmp_path / "none")


@pytest.mark.parametrize(
    ("mode", "owner", "reader", "is_open"),
    [
        (0o600, 1000, 1000, False),
        (0o640, 1000, 1000, True),
        (0o604, 1000, 1000, True),
        (0o440, 0, 10001, False),  # a secret of Kubernetes, for the group of the pod
        (0o444, 0, 10001, True),
        (0o460, 0, 10001, True),
        (0o440, 0, 0, True),
    ],
)
def test_a_signing_key_that_others_can_read_is_no_key(mode: int, owner: int, reader: int, is_open: bool) -> None:
    assert keys.others_can_read(mode, owner, reader) == is_open
