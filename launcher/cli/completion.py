"""``dmr completion``: shell completion for both programs."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from . import completing  # noqa: F401  # its way of bash

PROGRAMS = {"dmr": "_DMR_COMPLETE", "dmr-launch": "_DMR_LAUNCH_COMPLETE"}


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes SHELL complete commands, options, runs, policies and files of dmr and dmr-launch.

    \b
    Examples:
      eval "$(dmr completion bash)"                             in ~/.bashrc
      dmr completion zsh > "${fpath[1]}/_dmr"                   for zsh
      dmr completion fish > ~/.config/fish/completions/dmr.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    for program, variable in PROGRAMS.items():
        click.echo(found(click.Command(program), {}, program, variable).source())
