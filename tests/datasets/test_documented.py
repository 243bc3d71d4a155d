"""docs/datasets.md has the signature of each operation of the system datasets."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from typing import get_type_hints

from structable import datasets
from structable.datasets import Session
from tests.page_code import ROOT


def test_signatures_of_all_operations() -> None:
    text = "".join((ROOT / "docs" / "datasets.md").read_text(encoding="utf-8").split())
    assert [one for one in signatures() if "".join(one.split()) not in text] == []


def test_classes_of_all_operations_are_exported() -> None:
    named = {name for one in signatures() for name in re.findall(r"[A-Z]\w+", one.rpartition("-> ")[2])}
    assert named - {"None"} - set(datasets.__all__) == set()


def signatures() -> Iterator[str]:
    for name, attribute in vars(Session).items():
        if isinstance(attribute, cached_property):
            dataset = get_type_hints(attribute.func)["return"]
            for verb, function in inspect.getmembers(dataset, inspect.isfunction):
                if not verb.startswith("_"):
                    yield f"{name}.{verb}{_without_types(inspect.signature(function))}"


def _without_types(signature: inspect.Signature) -> str:
    parameters = [one.replace(annotation=inspect.Parameter.empty) for one in list(signature.parameters.values())[1:]]
    shown = f"{inspect.Signature(parameters)} -> {signature.return_annotation}"
    return re.sub(r"<(\w+\.\w+): [^>]*>", r"\1", shown)
