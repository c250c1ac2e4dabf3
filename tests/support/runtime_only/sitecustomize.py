"""Hide modules from every Python that starts with this directory on its path.

The tests' environment has more installed than `make demo` makes: what runs in the one must not need
what only the other has.
"""

import os
import sys
from importlib.abc import MetaPathFinder

HIDDEN = frozenset(os.environ.get("HIDDEN_MODULES", "").split(","))


class Hiding(MetaPathFinder):
    """Says that hidden modules do not exist, before anybody finds them."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named '{fullname}'", name=fullname)


sys.meta_path.insert(0, Hiding())
