"""What a shell completes where: runs, checkpoints, programs, policies, files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _files(incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def _begin(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(set(names)) if name.startswith(incomplete)]


def one_of(*names: str) -> Completer:
    """Return what completes one of a few words."""
    return lambda ctx, param, incomplete: _begin(names, incomplete)


def complete_folder(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a folder."""
    return [CompletionItem(incomplete, type="dir")]


def _runs() -> list[str]:
    return [path.parent.name for path in Path("dmr-runs").glob("*/run.json")]


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a RUN: the runs below ``dmr-runs``, and folders."""
    return [*_begin(_runs(), incomplete), CompletionItem(incomplete, type="dir")]


def complete_where(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a WHERE of ``dmr ckpt``: the runs below ``dmr-runs``, folders, and checkpoint files."""
    return [*_begin(_runs(), incomplete), *_files(incomplete)]


def complete_command(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a program and its arguments: what PATH has for the first word, and files."""
    if not incomplete or "/" in incomplete or ctx.params.get(param.name or ""):
        return _files(incomplete)
    found = set()
    for folder in os.get_exec_path():
        try:
            with os.scandir(folder) as entries:
                found |= {each.name for each in entries if each.name.startswith(incomplete)}
        except OSError:
            continue
    return [*_begin(found, incomplete), *_files(incomplete)]


def complete_policy(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a policy."""
    from ...resize.policy import policy_names

    return _begin(policy_names(), incomplete)


def complete_mpi(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a way to start MPI, or the path of a program that does."""
    from ..engines.mpi import CHOICES

    return _files(incomplete) if "/" in incomplete else _begin(CHOICES, incomplete)


def complete_learned(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a program of which earlier runs taught something."""
    from ..models.store import ModelStore

    return _begin((key.program for key in ModelStore.default().read()[0].entries), incomplete)


def complete_app(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a description of a foreign program: a profile that comes along, or a file."""
    from ..foreign.load import profiles

    return [*_begin(profiles(), incomplete), *_files(incomplete)]


def complete_cluster(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a private Slurm of this user's."""
    from ..cluster.places import folders

    return _begin((each.name for each in folders()), incomplete)


def complete_workload(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a workload: a generator, or a file."""
    from .simulate import GENERATORS

    return [*_begin(GENERATORS, incomplete), *_files(incomplete)]


@add_completion_class
class Bash(BashComplete):
    """click's, with files beside words, and the line as it was typed: bash splits ``1:2`` and ``--x=y`` in three."""

    source_template = """\
%(complete_func)s() {
    local IFS=$'\\n' type value response files=
    response=$(env COMP_WORDS="${COMP_LINE:0:COMP_POINT}" COMP_CWORD=line %(complete_var)s=bash_complete "$1")
    COMPREPLY=()
    for value in $response; do
        type=${value%%%%,*} value=${value#*,}
        case $type in
            dir) files=-d ;;
            file) files=-f ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done
    if [[ -n $files && ${#COMPREPLY[@]} -gt 0 ]]; then
        COMPREPLY+=($(compgen $files -- "$2"))
        compopt -o filenames
    elif [[ $files == -d ]]; then
        compopt -o dirnames
    elif [[ -n $files ]]; then
        compopt -o default
    fi
    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    @staticmethod
    def _check_version() -> None:
        """Bash 4.4 is older than any Python that this runs with; none is started to be asked."""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_WORDS"]
        if os.environ["COMP_CWORD"] != "line":
            return super().get_completion_args()
        typed = split_arg_string(line)
        while typed and re.match(r"[A-Za-z_]\w*=", typed[0]):
            typed.pop(0)
        args = typed[1:]
        return (args, "") if line[-1:].isspace() or not args else (args[:-1], args[-1])
