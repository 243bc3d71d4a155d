"""`structable.spi.errors`: the errors by themselves."""

import structable.spi
from structable.spi import StructableError, errors


def test_module_has_all_errors_of_the_interface() -> None:
    exported = {name: getattr(structable.spi, name) for name in structable.spi.__all__}
    wanted = {name: one for name, one in exported.items() if isinstance(one, type) and issubclass(one, StructableError)}
    assert {name: getattr(errors, name) for name in errors.__all__} == wanted
