"""The build hook of the wheel, and of an installation in place: compiles the kernel where that is possible."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags

sys.path.insert(0, str(Path(__file__).parent))
from compile_kernel import TARGET, compile_kernel


class KernelBuildHook(BuildHookInterface):
    """Puts the extension into the wheel; without it the wheel is pure Python."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files are gathered."""
        problem = compile_kernel(Path(self.root))
        if problem is None:
            build_data["pure_python"] = False
            build_data["tag"] = f"cp311-abi3-{next(sys_tags()).platform}"
            build_data["artifacts"].append(str(TARGET))
        elif os.environ.get("RMQTOOL_KERNEL") == "yes":
            raise SystemExit(f"the kernel cannot be compiled: {problem}")
        else:
            self.app.display_warning(f"rmqtool is installed without its compiled kernel: {problem}")
