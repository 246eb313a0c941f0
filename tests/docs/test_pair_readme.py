"""The examples of mempair_db/pair/README.md run, and its map is complete."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import mempair_db

FOLDER = Path(mempair_db.__file__).parent / "pair"
TEXT = (FOLDER / "README.md").read_text(encoding="utf-8")


def test_the_examples_run_as_printed() -> None:
    blocks = re.findall(r"```pycon\n(.*?)```", TEXT, re.DOTALL)
    assert blocks
    for block in blocks:
        test = doctest.DocTestParser().get_doctest(block, {}, "README.md", None, 0)
        assert doctest.DocTestRunner().run(test).failed == 0


def test_every_file_is_on_the_map() -> None:
    files = {path.name for path in FOLDER.glob("*.py")} - {"__init__.py"}
    assert files == set(re.findall(r"`(\w+\.py)`", TEXT.partition("## Map")[2].partition("Read `step.py`")[0]))


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", TEXT)
    assert links
    for link in links:
        assert (FOLDER / link).exists(), link


def test_every_test_file_it_names_exists() -> None:
    tests = Path(__file__).parent.parent
    for name in re.findall(r"`(?:tests/\w+/)?(test_\w+\.py)`", TEXT):
        assert list(tests.rglob(name)), name
