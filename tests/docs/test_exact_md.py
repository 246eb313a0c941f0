"""A reference to EXACT.md leads somewhere, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import mempair_db

ROOT = Path(__file__).parents[2]
PAIR = Path(mempair_db.__file__).parent / "pair"
TEXT = (PAIR / "EXACT.md").read_text(encoding="utf-8")


def test_every_reference_leads_to_a_section() -> None:
    sections = set(re.findall(r"^## (\d)\. ", TEXT, re.MULTILINE))
    files = [*PAIR.parent.rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "sql").rglob("*.sql")]
    found = [
        (file, number)
        for file in files
        if file != Path(__file__)
        for numbers in re.findall(r"EXACT\.md,\s+(\w+(?: (?:to|and) \w+)?)", file.read_text(encoding="utf-8"))
        for number in re.split(r" to | and ", numbers)
    ]
    assert len(found) >= 5
    assert [(file, number) for file, number in found if number not in sections] == []


def test_every_file_and_command_it_names_exists() -> None:
    for name in re.findall(r"`(tests/[\w/]+\.py)`", TEXT):
        assert (ROOT / name).exists(), name
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", TEXT):
        assert (PAIR / link).exists(), link
