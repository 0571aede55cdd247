"""The application: its commands, and how errors leave it."""

from __future__ import annotations

import sys
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..errors import ExciseError
from ..version import __version__
from . import evaluate, export, index, search

__all__ = ["app"]

_PACKAGE = Path(__file__).resolve().parents[1]

# Commands of other modules; imported when called, absent when their module is.
_LAZY = {
    "train": "excise_integrations.train.cli:app",
    "calibrate": "excise_integrations.train.cli:calibrate_app",
    "mine": "excise_integrations.train.mine_cli:mine_app",
    "warm": "excise_integrations.train.cli:warm_app",
    "bench": "excise_integrations.bench.cli:app",
    "log": "excise_integrations.audit.cli:app",
}


class _Group(TyperGroup):
    """A group whose errors of ours end as one line on stderr, and that finds further commands."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *(name for name in _LAZY if _load(name) is not None)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, cmd_name) or _load(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                # An argument that is no Unicode, or a character that the terminal lacks, is shown by its escape.
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except ExciseError as error:
            message = str(error)
        except BrokenPipeError:
            raise
        except OSError as error:
            message = str(error)
        typer.echo(f"Error: {message}", err=True)
        raise typer.Exit(1)


def _load(name: str) -> Any:
    module, _, attribute = _LAZY.get(name, "").partition(":")
    # Not find_spec: it imports the parent package, torch and all.
    if not module or not _PACKAGE.parent.joinpath(*module.split(".")).with_suffix(".py").is_file():
        return None
    found = getattr(import_module(module), attribute, None)
    if found is None:
        return None
    found._add_completion = False  # a sub-command cannot install completion for the whole
    command = typer.main.get_command(found)
    command.name = name
    return command


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    help="Exclusion-aware re-ranking for late-interaction retrieval.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


app.command("index")(index.index)
app.command("search")(search.search)
app.command("explain")(search.explain)
app.command("evaluate")(evaluate.evaluate)
app.command("export")(export.export)
