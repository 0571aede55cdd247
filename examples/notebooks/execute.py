"""Run the notebooks of this folder from the first cell to the last and keep what they print.

    python examples/notebooks/execute.py [NOTEBOOK …]     # all of them by default; each file is rewritten

Needs ``pip install nbclient nbformat ipykernel`` beside what the notebooks need.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

HERE = Path(__file__).parent
# No network, and none of the loaders' progress bars and notices in the outputs.
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TQDM_DISABLE": "1",
    "PYTHONWARNINGS": "ignore",
    "JUPYTER_PLATFORM_DIRS": "1",
}


def execute(path: Path, *, timeout: int = 240) -> nbformat.NotebookNode:
    """Run a notebook in a kernel of its own.

    Args:
        path: the notebook; the file is only read.
        timeout: seconds for one cell.

    Returns:
        The notebook with its outputs, those on stderr left out.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed, an ``assert`` for example.
    """
    notebook = nbformat.read(path, as_version=4)
    # The package of this checkout, when it is not installed.
    paths = os.pathsep.join(filter(None, [str(HERE.parents[1]), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as folder:
        # Sockets in a folder instead of ports. The kernel is this interpreter's, whatever is registered elsewhere.
        manager = KernelManager(kernel_name="python3", transport="ipc", ip=str(Path(folder) / "kernel"))
        manager.kernel_spec.argv[0] = sys.executable
        client = NotebookClient(
            notebook,
            km=manager,
            timeout=timeout,
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": str(path.parent)}},
        )
        try:
            client.execute(env={**os.environ, **QUIET, "PYTHONPATH": paths})
        finally:
            # nbclient ends only kernels of its own making.
            manager.shutdown_kernel(now=True)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata.pop("language_info", None)
    return notebook


def main(names: list[str]) -> None:
    """Run notebooks and rewrite them."""
    for path in [Path(name) for name in names] or sorted(HERE.glob("*.ipynb")):
        nbformat.write(execute(path), path)
        print(f"{path.name}: done")


if __name__ == "__main__":
    main(sys.argv[1:])
