"""The files under docker/, as far as they can be checked without Docker."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"


def dockerfile() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile and their arguments."""
    text = (DOCKER / "Dockerfile").read_text().replace("\\\n", " ")
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return [(instruction, rest) for instruction, _, rest in (line.partition(" ") for line in lines)]


def compose() -> dict[str, Any]:
    """compose.yaml, which keeps to nested mappings, block lists of strings and JSON lists."""
    root: dict[str, Any] = {}
    parents: list[tuple[int, Any]] = [(-1, root)]
    for line in (DOCKER / "compose.yaml").read_text().splitlines():
        content = line.strip()
        if not content or content.startswith("#"):
            continue
        indent = len(line) - len(line.lstrip())
        while parents[-1][0] >= indent:
            parents.pop()
        parent = parents[-1][1]
        if content.startswith("- "):
            parent.setdefault("items", []).append(content[2:].strip('"'))
            continue
        key, _, value = content.partition(":")
        assert key not in parent, f"{key} twice"
        value = value.strip()
        parent[key] = json.loads(value) if value.startswith(("[", '"')) else value or {}
        parents.append((indent, parent[key]))
    return root


def mempair_commands() -> Iterator[tuple[str, list[str]]]:
    """Where a `mempair` command is used, and its words."""
    instructions = dict(dockerfile())
    entrypoint = json.loads(instructions["ENTRYPOINT"])
    yield "Dockerfile CMD", [*entrypoint, *json.loads(instructions["CMD"])]
    yield "Dockerfile HEALTHCHECK", json.loads(instructions["HEALTHCHECK"].partition("CMD ")[2])
    for name, service in compose()["services"].items():
        if service["image"] == "mempair":
            yield f"compose.yaml {name}", [*entrypoint, *service["command"]]
            if test := service["healthcheck"].get("test"):
                yield f"compose.yaml {name} healthcheck", test[1:]
    readme = (DOCKER / "README.md").read_text()
    for block in re.findall(r"```sh\n(.*?)```", readme, re.DOTALL):
        for line in block.splitlines():
            words = shlex.split(line)
            if words[:2] == ["docker", "run"] or words[-3:-1] == ["worker", "mempair"]:
                yield f"README.md: {line}", words[words.index("mempair") :]
    for words in re.findall(r"`(mempair [a-z ]+)`", readme):
        yield f"README.md: {words}", words.split()


@pytest.mark.parametrize("words", [pytest.param(words, id=where) for where, words in mempair_commands()])
def test_every_command_exists(words: list[str]) -> None:
    from typer.testing import CliRunner  # noqa: PLC0415

    from mempair_db.cli import app  # noqa: PLC0415

    assert words[0] == "mempair"
    # Unknown commands and options are refused before help is shown.
    result = CliRunner().invoke(app, [*words[1:], "--help"])
    assert result.exit_code == 0, result.output


def test_the_worker_is_what_the_image_runs() -> None:
    assert dict(mempair_commands())["Dockerfile CMD"] == ["mempair", "worker"]


def test_the_image_does_not_run_as_root() -> None:
    instructions = [instruction for instruction, _ in dockerfile()]
    user = dict(dockerfile())["USER"]
    assert user not in ("root", "0")
    # It stays that user, and brings nothing of anybody else's in afterwards.
    assert not {"USER", "COPY", "ADD"} & set(instructions[instructions.index("USER") + 1 :])


def test_everything_the_image_copies_is_there() -> None:
    for instruction, arguments in dockerfile():
        if instruction == "COPY" and not arguments.startswith("--from"):
            for source in arguments.split()[:-1]:
                assert (ROOT / source).exists(), source


def test_the_image_has_all_that_the_package_is_built_from() -> None:
    copied = {word for name, rest in dockerfile() if name == "COPY" for word in rest.split()}
    project = (ROOT / "pyproject.toml").read_text()
    included = re.search(r"force-include\]\n(.*?)\n\n", project, re.DOTALL)
    assert included
    assert {line.split(" = ")[0] for line in included[1].splitlines()} <= copied
    assert {"pyproject.toml", "README.md", "LICENSE", "mempair_db"} <= copied


def test_services_wait_for_each_other() -> None:
    services = compose()["services"]
    assert set(services) == {"postgres", "install", "worker"}
    assert services["install"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert services["worker"]["depends_on"]["install"] == {"condition": "service_completed_successfully"}
    for service in services.values():
        for dependency, how in service.get("depends_on", {}).items():
            assert dependency in services
            assert how["condition"] != "service_healthy" or "test" in services[dependency]["healthcheck"]


def test_the_services_agree_on_the_database() -> None:
    services = compose()["services"]
    server = services["postgres"]["environment"]
    for name in ("install", "worker"):
        client = services[name]["environment"]
        assert client["PGHOST"] == "postgres"
        assert client["PGUSER"] == server["POSTGRES_USER"]
        assert client["PGDATABASE"] == server["POSTGRES_DB"]
        assert client["PGPASSWORD"] == server["POSTGRES_PASSWORD"]


def test_the_password_has_no_default_and_the_port_is_not_public() -> None:
    postgres = compose()["services"]["postgres"]
    assert ":?" in postgres["environment"]["POSTGRES_PASSWORD"]
    assert all(port.startswith("127.0.0.1:") for port in postgres["ports"]["items"])


def test_the_build_context_is_the_root_of_the_repository() -> None:
    for name in ("install", "worker"):
        build = compose()["services"][name]["build"]
        assert (DOCKER / build["context"]).resolve() == ROOT
        assert (ROOT / build["dockerfile"]).is_file()
