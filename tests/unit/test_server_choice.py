"""Which server the tests themselves use."""

from __future__ import annotations

import pytest

from tests.conftest import choose_server, docker_answers

DSN = {"MEMPAIR_TEST_DSN": "postgresql://somewhere"}
IMAGE = {"MEMPAIR_TEST_IMAGE": "postgres:14"}


@pytest.mark.parametrize(
    ("environment", "binaries", "docker", "chosen"),
    [
        (DSN, True, True, ("given", "postgresql://somewhere")),
        (DSN | IMAGE, False, False, ("given", "postgresql://somewhere")),
        (IMAGE, True, True, ("container", "postgres:14")),
        ({}, True, True, ("embedded", "")),
        ({}, True, False, ("embedded", "")),
        ({}, False, True, ("container", "postgres:17")),
        ({"MEMPAIR_TEST_DSN": ""}, True, True, ("embedded", "")),
    ],
)
def test_what_was_asked_for_comes_first_and_what_needs_no_engine_next(
    environment: dict[str, str], binaries: bool, docker: bool, chosen: tuple[str, str]
) -> None:
    assert choose_server(environment, lambda: binaries, lambda: docker) == chosen


@pytest.mark.parametrize(("environment", "reason"), [({}, "no PostgreSQL here"), (IMAGE, "no Docker engine answers")])
def test_without_any_server_the_reason_is_told(environment: dict[str, str], reason: str) -> None:
    with pytest.raises(pytest.UsageError, match=reason):
        choose_server(environment, lambda: "MEMPAIR_TEST_IMAGE" in environment, lambda: False)


def test_an_engine_that_is_not_there_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")
    assert docker_answers() is False
