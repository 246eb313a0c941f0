"""The mutants of `make mutants` must fit the lines they are about, which move."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.says)
def test_a_mutant_has_one_line_to_change_and_tests_to_notice_it(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1
    assert mutant.new != mutant.old
    assert all((ROOT / test).is_file() for test in mutant.tests)


def test_every_mutant_has_its_row_in_the_table() -> None:
    table = (ROOT / "tests" / "mutants" / "README.md").read_text(encoding="utf-8")
    missing = [mutant.says for mutant in MUTANTS if f"| {mutant.says} | `{mutant.file}` |" not in table]
    assert missing == []
