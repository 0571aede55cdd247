"""The command ``excise``."""

from __future__ import annotations

import sys

from .errors import MissingExtraError

__all__ = ["main"]


def main() -> None:
    """Run the command line; exit with 0, 1 for an error of ours on stderr, or 2 for wrong usage."""
    try:
        from ._cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        print(f"Error: {MissingExtraError(error.name, 'cli')}", file=sys.stderr)
        sys.exit(1)
    app(prog_name="excise")


if __name__ == "__main__":
    main()
