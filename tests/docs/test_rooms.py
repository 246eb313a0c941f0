"""The map of the package, the glossary, and links between documents."""

import re
from pathlib import Path

import pytest

import mempair_db

ROOT = Path(__file__).parents[2]
PACKAGE = Path(mempair_db.__file__).parent
DOCUMENTS = [*ROOT.glob("*.md"), *PACKAGE.rglob("*.md"), *(ROOT / "sql").glob("*.md"), *(ROOT / "docker").glob("*.md")]


def test_every_room_is_on_the_map() -> None:
    rooms, _, glossary = (PACKAGE / "README.md").read_text(encoding="utf-8").partition("## Glossary")
    named = set(re.findall(r"`(\w+)(?:\.py)?`", rooms))
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert there - named == {"__init__", "__main__"}
    words = re.findall(r"^\| ([^|]+?) \|", glossary, re.MULTILINE)
    assert len(words) == len(set(words)) > 30


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(file: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", file.read_text(encoding="utf-8"))
    assert [link for link in links if not (file.parent / link).exists()] == []
