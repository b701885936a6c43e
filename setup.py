"""Builds the package; all that is plain metadata is in setup.cfg.

The signatures lie beside the package in the tree and inside it when installed, compiled into a bundle so that a run
need not validate them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithBundle(build_py):
    """Puts the compiled signatures beside their sources."""

    def run(self) -> None:
        """Copy the package, then compile its signatures."""
        super().run()
        if self.editable_mode:
            return  # the tree is read as it is
        sys.path.insert(0, str(Path(__file__).parent))
        from logtriage.database import write_bundle

        write_bundle(Path(self.build_lib) / "logtriage" / "_signatures")


setup(cmdclass={"build_py": BuildWithBundle})
