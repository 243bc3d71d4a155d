"""The conformance suite: subclass `BackendConformance`, give it the URL of a fresh store, and run pytest.

    from structable.spi.conformance import BackendConformance, Capabilities

    class TestMyBackend(BackendConformance):
        capabilities = Capabilities(multi_process=False, restartable=False, durable_after_kill=False)

        @pytest.fixture
        def storage_url(self, tmp_path):
            return f"mybackend://{tmp_path}/store"

Every rule of DESIGN.md sections 2 to 5 is one test with the rule in its docstring. A test that is skipped names the
capability that the backend does not declare. `run` does the same for a URL pattern, without a class.
"""

from .capabilities import Capabilities
from .suite import BackendConformance

__all__ = ["BackendConformance", "Capabilities"]
