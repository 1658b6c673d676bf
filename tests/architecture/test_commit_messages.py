"""The commit-msg hook accepts what CONTRIBUTING.md asks for, and nothing else."""

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOOK = ROOT / ".githooks" / "commit-msg"
BODY = "\n\nA second crash could otherwise join the remains of two batches.\n"

loader = SourceFileLoader("commit_msg", str(HOOK))
spec = spec_from_loader("commit_msg", loader)
assert spec is not None
commit_msg = module_from_spec(spec)
loader.exec_module(commit_msg)


@pytest.mark.parametrize(
    "subject",
    [
        "relay: cut a torn batch before the next write",
        "pipeline: process segments in order",
        "policy, wire: feed the breaker with outcomes",
        "tests: speed up the kill tests",
        "cli/rendering: pass widths as arguments",
    ],
)
def test_an_imperative_subject_with_a_scope_and_a_body_is_accepted(subject: str) -> None:
    assert commit_msg.problems_in(subject + BODY) == []


@pytest.mark.parametrize(
    ("subject", "problem"),
    [
        ("Cut a torn batch", "layer: verb"),
        ("relay:cut a torn batch", "layer: verb"),
        ("relay: cuts a torn batch", "imperative"),
        ("relay: fixed a torn batch", "imperative"),
        ("relay: fixing a torn batch", "imperative"),
        ("relay: a torn batch is cut", "imperative"),
        ("relay: what a torn batch leaves", "imperative"),
        ("relay: Cut a torn batch", "imperative"),
        ("relay: cut a torn batch.", "full stop"),
        ("relay: cut " + "very " * 20 + "torn batches", "at most 72"),
    ],
)
def test_any_other_subject_is_rejected_with_the_reason(subject: str, problem: str) -> None:
    assert problem in "; ".join(commit_msg.problems_in(subject + BODY))


def test_a_message_without_a_body_is_rejected() -> None:
    assert "gives the reason" in "; ".join(commit_msg.problems_in("relay: cut a torn batch\n"))


def test_a_body_directly_below_the_subject_is_rejected() -> None:
    message = "relay: cut a torn batch\nThe reason, without a blank line before it.\n"
    assert "second line blank" in "; ".join(commit_msg.problems_in(message))


def test_the_comments_git_adds_do_not_count_as_a_body() -> None:
    message = "relay: cut a torn batch\n\n# Please enter the commit message\n"
    assert "gives the reason" in "; ".join(commit_msg.problems_in(message))


@pytest.mark.parametrize("subject", ["Merge branch 'main'", 'Revert "relay: cut"', "fixup! x"])
def test_messages_that_git_writes_are_accepted(subject: str) -> None:
    assert commit_msg.problems_in(subject + "\n") == []


def test_the_hook_reads_the_file_it_is_given(tmp_path: Path) -> None:
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text("relay: cut a torn batch" + BODY, encoding="utf-8")
    assert commit_msg.main(str(message)) == 0
    message.write_text("Cut it\n", encoding="utf-8")
    assert commit_msg.main(str(message)) == 1


def test_the_hook_can_be_executed_by_git() -> None:
    assert HOOK.stat().st_mode & 0o111
