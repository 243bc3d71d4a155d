"""Random patches against a model that applies arm by arm."""

from __future__ import annotations

import random
from collections.abc import Mapping
from operator import itemgetter

import pytest

from structable.spi import CommitResult, PatchArm, RecordNotFoundError, Storage, StructuredTable

from .patch_case import Arm, PatchCase, patch_batch
from .samples import ITEMS, Record, item, plain


class RandomPatches(PatchCase):
    """Patches of random arms that fit together."""

    def test_random_patches(self, storage: Storage, streamed: StructuredTable) -> None:
        """Random patches leave the rows of a model that applies arm by arm."""
        chance = random.Random(20_261_123)
        model = {row["id"]: row for row in plain(streamed.scan())}
        for _ in range(max(8, self.stress_rounds // 5)):
            arms, required = self.random_arms(chance)
            missing = self.missing_of(model, arms, required)
            skips = chance.random() < 0.7
            job = self.patch_job(storage, on_missing="skip" if skips else "fail")
            chance.shuffle(arms)
            parts = [arms[place::2] for place in range(2)]
            staged = [
                storage.stage(job, place, 0, [patch_batch(ITEMS, part, required)]) for place, part in enumerate(parts)
            ]
            if missing and not skips:
                with pytest.raises(RecordNotFoundError) as caught:
                    storage.commit_write(job, staged)
                assert (caught.value.count, caught.value.keys) == (len(missing), tuple((key,) for key in missing[:10]))
            else:
                assert storage.commit_write(job, staged) == CommitResult(applied=True, missing=len(missing))
                self.apply_arms(model, arms)
            assert plain(streamed.scan()) == [model[key] for key in sorted(model)]

    def random_arms(self, chance: random.Random) -> tuple[list[Arm], list[Record]]:
        """Return arms of some of twenty keys that fit together, and the keys that are required."""
        arms: list[Arm] = []
        required: list[Record] = []
        for key in chance.sample(range(20), chance.randint(0, 14)):
            chosen = chance.choice(
                [["present"], ["absent"], ["present", "absent"], ["replace"], ["delete"], ["delete", "insert"]]
            )
            for arm in chosen:
                values = {"n": chance.randint(0, 9), "tag": chance.choice(["a", "b", None]), "note": "x", "rank": 2}
                named = chance.sample(sorted(values), chance.randint(0, 4))
                arms.append((arm, {"id": key, **{name: values[name] for name in named}}))
            if chance.random() < 0.2:
                required.append({"id": key})
        return arms, required

    def missing_of(self, model: Mapping[int, Record], arms: list[Arm], required: list[Record]) -> list[int]:
        by_key: dict[int, set[str]] = {}
        for arm, row in arms:
            by_key.setdefault(row["id"], set()).add(arm)
        return sorted(
            key
            for key, chosen in by_key.items()
            if key not in model and (chosen == {str(PatchArm.PRESENT)} or {"id": key} in required)
        )

    def apply_arms(self, model: dict[int, Record], arms: list[Arm]) -> None:
        there = set(model)
        for arm, row in sorted(arms, key=itemgetter(0)):  # deletions before insertions
            key = row["id"]
            if arm == "delete":
                model.pop(key, None)
            elif arm in ("replace", "insert") or (arm == "absent" and key not in there):
                model[key] = {**item(key), **row}
            elif arm == "present" and key in there:
                model[key] = {**model[key], **row}
