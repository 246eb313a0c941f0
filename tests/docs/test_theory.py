"""A reference to the theory leads somewhere."""

import re
from pathlib import Path

import pytest

import mempair_db

ROOT = Path(__file__).parents[2]
PAIR = Path(mempair_db.__file__).parent / "pair"
REFERENCE = re.compile(r"\btheory (\d+(?:\.\d+)?(?:(?:, | and | to )\d+(?:\.\d+)?)*)")
HEADING = re.compile(r"^#+ (\d+(?:\.\d+)?)\.? ", re.MULTILINE)


def sections() -> set[str]:
    return set(HEADING.findall((PAIR / "THEORY.md").read_text(encoding="utf-8")))


def references() -> list[tuple[str, str]]:
    files = [*PAIR.parent.rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "sql").rglob("*.sql")]
    return [
        (f"{file.relative_to(ROOT)}", number)
        for file in sorted(files)
        if file != Path(__file__)
        for found in REFERENCE.findall(file.read_text(encoding="utf-8"))
        for number in re.findall(r"\d+(?:\.\d+)?", found)
    ]


@pytest.mark.parametrize("number", sorted({number for _, number in references()}))
def test_every_reference_to_the_theory_resolves(number: str) -> None:
    assert number in sections(), [file for file, each in references() if each == number]


def test_the_code_does_refer_to_it() -> None:
    assert len(references()) > 15


def test_files_and_functions_that_it_names_exist() -> None:
    text = (PAIR / "THEORY.md").read_text(encoding="utf-8")
    for module, attribute in re.findall(r"`(\w+)\.(\w+)`", text):
        file = PAIR / f"{module}.py"
        if attribute == "py":
            assert file.exists(), file
        elif file.exists():
            assert re.search(rf"(?:^|def |class ){attribute}\b", file.read_text(encoding="utf-8"), re.MULTILINE)


def exact_references() -> list[str]:
    texts = (re.sub(r"\s+", " ", file.read_text(encoding="utf-8")) for file in PAIR.parent.rglob("*.py"))
    return sorted({section for text in texts for section in re.findall(r"\(EXACT\.md, ([^)]+)\)", text)})


@pytest.mark.parametrize("section", exact_references())
def test_every_reference_to_the_exact_pairs_theory_resolves(section: str) -> None:
    text = (PAIR / "EXACT.md").read_text(encoding="utf-8")
    titles = dict(re.findall(r"^## (\d+)\. (.+)$", text, re.MULTILINE))
    numbers = re.findall(r"\d+", section)
    assert set(numbers) <= set(titles) if numbers else [each for each in titles.values() if each.startswith(section)]
