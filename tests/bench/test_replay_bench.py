from __future__ import annotations

from mempair_db.bench import replay


def test_the_replay_benchmark_runs_and_its_replay_is_exact(server_dsn: str) -> None:
    result = replay.run(quick=True, dsn=server_dsn)
    named = {goal["goal"]: goal for goal in result["goals"]}
    assert named["the replay equals the live state bit for bit"]["met"]
    assert [row["what"] for row in result["tables"][0]["rows"]] == [
        *("COPY", "COPY of what is exported", "export", "replay", "export and replay"),
    ]
    assert result["tables"][1]["rows"][0]["audits a second"] > 0
