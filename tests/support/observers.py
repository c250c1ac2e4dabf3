"""An observer of a consolidation worker."""


class Listening:
    """An observer that keeps the troubles."""

    def __init__(self):
        self.troubles = []

    def looked(self, streams):
        pass

    def ended(self, report, trouble):
        self.troubles.append(trouble)
