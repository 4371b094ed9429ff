"""``dmr explain`` and ``dmr replay``: what a policy did in a run, and what another would have done."""

from __future__ import annotations

import time
from typing import Any

import click

from ...resize import words
from . import TIME, fail, format_time, json_option, print_json, print_table
from .completing import complete_policy, complete_run
from .policies import make_policy, read_options


@click.command()
@click.argument("run", shell_complete=complete_run)
@click.option("--at", type=TIME, metavar="TIME", help="The decision in force so long after the run began.")
@click.option("--all", "every", is_flag=True, help="One line for every decision.")
@json_option
def explain(run: str, at: float | None, every: bool, as_json: bool) -> None:
    """Print the table behind a decision of RUN: each size's wait, cost, finish and gain, and why it was not taken.

    \b
    Examples:
      dmr explain heat-4711                the newest decision
      dmr explain heat-4711 --at 1:30:00   the one in force 1.5 hours after the run began
      dmr explain heat-4711 --all
    """
    from ...resize.explain import decision_from_json
    from ...resize.explain import explain as as_text

    found, began = _decided(run)
    if every:
        if as_json:
            print_json([{"time": each["time"], "step": each.get("step"), **each["decision"]} for each in found])
            return
        rows = [("AFTER", "GEN", "STEP", "DECISION", "NODES", "WHY")]
        for each in found:
            decision = decision_from_json(each["decision"])
            rows.append(
                (format_time(each["time"] - began), str(each["generation"]), str(each.get("step", "-")),
                 decision.action, str(decision.nodes), decision.reason)
            )  # fmt: skip
        print_table(rows, right="rrrlrl")
        return
    chosen = found[-1]
    if at is not None:
        before = [each for each in found if each["time"] - began <= at]
        if not before:
            first = format_time(found[0]["time"] - began, unit=" s")
            fail(f"the first decision of {run} came {first} after it began, later than {format_time(at, unit=' s')}")
        chosen = before[-1]
    if as_json:
        print_json({"time": chosen["time"], "step": chosen.get("step"), **chosen["decision"]})
        return
    click.echo(f"{format_time(chosen['time'] - began, unit=' s')} after the run began, step {chosen.get('step', '-')}")
    click.echo(as_text(decision_from_json(chosen["decision"])))


@click.command()
@click.argument("run", shell_complete=complete_run)
@click.option(
    "--policy", default="queue", show_default=True, metavar="NAME", help="A name, or module:Class.",
    shell_complete=complete_policy,
)  # fmt: skip
@click.option("--policy-option", "pairs", multiple=True, metavar="KEY=VALUE", help="An option of the policy.")
@json_option
def replay(run: str, policy: str, pairs: tuple[str, ...], as_json: bool) -> None:
    """Print what another policy would have done in RUN, along what was recorded of the cluster.

    Speed comes from all that the run measured; what it has not done is projected. Other jobs do what they did in
    reality, so the longer the policy differs, the less the answer is worth.

    \b
    Examples:
      dmr replay heat-4711 --policy cheapest --policy-option slower=2
      dmr replay heat-4711 --policy static --json
    """
    from ...resize.explain import decision_from_json, decision_to_json
    from ...resize.policy import PolicyError
    from ...resize.record import cluster_from_json, run_from_json
    from ...resize.replay import Frame
    from ...resize.replay import replay as again

    found, began = _decided(run)
    frames = []
    for each in found:
        if "run" in each and "cluster" in each:
            view, cluster = run_from_json(each["run"]), cluster_from_json(each["cluster"])
            frames.append(Frame(view, cluster, decision_from_json(each["decision"])))
    if not frames:
        fail(f"the decisions of {run} were recorded without what they were made from; they can't be replayed")
    try:
        result = again(frames, make_policy(policy, read_options(pairs)))
    except PolicyError as error:
        fail(f"can't replay {run}: {error}")
    really = _really(run)
    finished = really["state"] == "finished"
    finish = really["time"] if finished else result.real_finish
    hours = really["node_hours"] if finished else result.real_node_hours
    if as_json:
        print_json(
            {
                "policy": policy, "finish": result.finish, "real_finish": finish,
                "node_hours": result.node_hours, "real_node_hours": hours,
                "resizes": result.resizes, "real_resizes": really["resizes"], "borrowed": result.borrowed,
                "really": really, "real_is_projection": not finished,
                "frames": [{**vars(each), "decision": decision_to_json(each.decision)} for each in result.frames],
            }
        )  # fmt: skip
        return
    rows = [("AFTER", "REALLY", "WOULD HAVE", "STEP", "DECISION", "WHY")]
    for shown in result.frames:
        decision = shown.decision
        rows.append(
            (format_time(shown.time - began), str(shown.real), str(shown.nodes), str(shown.step),
             f"{decision.action} {decision.nodes}", decision.reason)
        )  # fmt: skip
    print_table(rows, right="rrrrll")
    steps = "" if really["step"] is None else f", step {really['step']}"
    steps += f" of {really['steps']}" if steps and really["steps"] is not None else ""
    done = {"finished": "done after", "running": "under way for"}.get(really["state"], f"{really['state']} after")
    click.echo(f"really: {done} {_spent(really['time'] - began, really['node_hours'], really['resizes'])}{steps}")
    click.echo("projected to the last step, by the speeds measured:")
    lines = [(policy, result.finish, result.node_hours, result.resizes)]
    if not finished:
        lines.insert(0, ("as it was", finish, hours, frames[-1].run.resizes))
    for name, end, used, resizes in lines:
        click.echo(f"{name}: done after {_spent(None if end is None else end - began, used, resizes)}")
    if result.borrowed:
        borrowed = words.nodes(result.borrowed)
        click.echo(f"it would have used up to {borrowed} that others had; what became of them is unknown")


def _spent(seconds: float | None, node_hours: float, resizes: int) -> str:
    from ...resize.words import count

    passed = "an unknown time" if seconds is None else format_time(seconds, unit=" s")
    return f"{passed}, {node_hours:.3g} node-hours, {count(resizes, 'change')} of size"


def _really(run: str) -> dict[str, Any]:
    """Return what a run has really done: until when, to which step, with how many node-hours; and in what state."""
    from ..run.finding import find_run
    from ..run.history import FINAL
    from ..run.status import history_now, read_status

    run_dir = find_run(run)
    history, status, now = history_now(run_dir), read_status(run_dir), time.time()
    last = history.last
    if last is not None and last.why in FINAL:
        state, until = str(last.why), last.end
    else:
        state, until = ("lost", status.updated) if status.state == "lost" else ("running", now)
    until = now if until is None else until
    return {
        "state": state, "time": until, "step": status.step if last is None or last.step is None else last.step,
        "steps": status.steps, "node_hours": history.node_hours(until), "resizes": history.resizes,
    }  # fmt: skip


def _decided(run: str) -> tuple[list[dict[str, Any]], float]:
    """Return the decisions that a run's ledger has, and when the run began."""
    from ..run.finding import find_run
    from ..run.undecided import why_undecided

    run_dir = find_run(run)
    events = run_dir.events()
    found = [each for each in events if each.get("event") == "decided" and isinstance(each.get("decision"), dict)]
    if not found:
        fail(why_undecided(run_dir))
    return found, min(each["time"] for each in events if "time" in each)
