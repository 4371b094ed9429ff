"""Ends of a program in the middle of its steps: nobody waits for ranks that are gone, and a clean exit is one."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_clean_exit_of_all_ranks_is_the_end_of_the_program(hand: Any, finish: Any, ranks: int) -> None:
    ended = finish(hand.start("ends.py", "all", ranks=ranks))
    assert ended.status == 0, ended.err
    assert hand.progress().state == "finished"


@pytest.mark.parametrize("how", ["one", "break"])
def test_a_rank_that_ends_before_the_others_is_an_error_not_a_hang(hand: Any, finish: Any, how: str) -> None:
    ended = finish(hand.start("ends.py", how, ranks=3), within=20)
    assert ended.status != 0
    assert ended.err.count("dmr: error: some ranks have ended, others are at safe point") == 1, ended.err
    assert hand.progress().state != "finished"
