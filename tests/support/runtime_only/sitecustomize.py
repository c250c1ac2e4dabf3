"""Hide modules from every Python that starts with this directory on its path.

The tests' environment has more installed than `make demo` makes: what runs in the one must not need
what only the other has.
"""

import os
import sys
from importlib.machinery import PathFinder

HIDDEN = frozenset(os.environ.get("HIDDEN_MODULES", "").split(","))


class Hiding:
    """Finds modules on the path, except hidden ones: to ask for those is no error, as elsewhere."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        if fullname.partition(".")[0] in HIDDEN:
            return None
        return PathFinder.find_spec(fullname, path, target)

    invalidate_caches = PathFinder.invalidate_caches
    find_distributions = PathFinder.find_distributions


sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
