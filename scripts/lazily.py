"""Modules that are imported when something of them is first used: a script without them prints its --help all the same."""
import importlib
import os
import sys


class Module:
    """Stands for a module: `torch = Module("torch")`. `package` is what pip installs where the module is missing."""

    def __init__(self, name, package=None):
        self._name, self._package = name, package or name

    def __getattr__(self, attribute):
        try:
            value = getattr(importlib.import_module(self._name), attribute)
        except ModuleNotFoundError as missing:
            if missing.name != self._name.split(".")[0]:
                raise
            script = os.path.splitext(os.path.basename(sys.argv[0]))[0]
            sys.exit(f"{script}: {missing.name} is missing: python3 -m pip install {self._package}")
        setattr(self, attribute, value)  # later uses are those of a plain attribute
        return value


torch = Module("torch")
F = Module("torch.nn.functional", "torch")
np = Module("numpy")
