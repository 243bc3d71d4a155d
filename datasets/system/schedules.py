"""Schedules of applications, and the triggers by which they are found."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable

from structable.datasets.identifiers import ProgramRef, check_name, check_texts, joined
from structable.datasets.records import Page, Records
from structable.datasets.tables.applications import APPLICATIONS
from structable.datasets.tables.schedules import SCHEDULE_TRIGGERS, SCHEDULES, Schedule, ScheduleStatus, ScheduleTrigger
from structable.spi import Range

from .context import Dataset

MAX_TRIGGER_BYTES = 1_500
_PROGRAM = "program:"


def program_trigger(ref: ProgramRef) -> str:
    """Return the trigger of a program, by which `drop_program` finds its schedules; a long one has a digest."""
    text = joined(*ref)
    if len(_PROGRAM) + len(text.encode()) > MAX_TRIGGER_BYTES:
        text = hashlib.sha256(text.encode()).hexdigest()
    return _PROGRAM + text


class Schedules(Dataset):
    """The datasets `schedules` and `schedule_triggers`.

    Dropping a program holds the fence `trigger/TRIGGER` of its trigger exclusively; schedules that get the trigger
    share it.

    A trigger is a text, by which `by_trigger` finds the schedules that it fires. A definition with a member
    `"triggers": "or"` needs one of its triggers, any other definition all of them.
    """

    def add(
        self,
        namespace: str,
        application: str,
        schedule: str,
        definition: object,
        *,
        triggers: Iterable[str],
        at: dt.datetime | None = None,
    ) -> Schedule:
        """Add a schedule of an application, SUSPENDED, of generation 1.

        Raises
        ------
        AlreadyExistsError
            If it exists.
        NotFoundError
            If there is no such application.
        """
        check_name(schedule, "schedule")
        wanted = _checked(triggers)
        self._context.records(APPLICATIONS).require(namespace, application)
        made = Schedule(
            namespace=namespace,
            application=application,
            schedule=schedule,
            definition=definition,
            status=ScheduleStatus.SUSPENDED,
            generation=1,
            updated=self._context.now(at),
        )
        self._context.member_of(namespace)
        self._schedules.insert(made)
        self._context.share(f"app/{namespace}/{application}")
        self._put_triggers(made, wanted)
        return made

    def get(self, namespace: str, application: str, schedule: str) -> Schedule | None:
        """Return the schedule, or None."""
        return self._schedules.get(namespace, application, schedule)

    def triggers(self, namespace: str, application: str, schedule: str) -> list[str]:
        """Return the triggers of a schedule, in their order."""
        with self._triggers.scan(Range.prefix((namespace, application, schedule))) as found:
            return [one.trigger for one in found]

    def update(
        self,
        namespace: str,
        application: str,
        schedule: str,
        definition: object,
        *,
        triggers: Iterable[str] | None = None,
        at: dt.datetime | None = None,
    ) -> Schedule:
        """Replace the definition; the status stays, and the generation grows by one.

        Parameters
        ----------
        triggers : iterable of str, optional
            The new triggers; the present ones stay, if not given.

        Raises
        ------
        NotFoundError
            If there is no such schedule.
        """
        wanted = None if triggers is None else _checked(triggers)
        key = (namespace, application, schedule)
        before = self._schedules.require(*key)
        now = self._context.now(at)
        self._schedules.change(key, definition=definition, generation=before.generation + 1, updated=now)
        if wanted is not None:
            self._triggers.delete_all(Range.prefix(key))
            self._put_triggers(before, wanted)
        return self._schedules.require(*key)

    def set_status(
        self,
        namespace: str,
        application: str,
        schedule: str,
        status: ScheduleStatus,
        *,
        at: dt.datetime | None = None,
    ) -> None:
        """Set whether a schedule starts runs: SCHEDULED, or SUSPENDED.

        Raises
        ------
        NotFoundError
            If there is no such schedule.
        """
        key = (namespace, application, schedule)
        self._schedules.change(key, status=ScheduleStatus(status), updated=self._context.now(at))

    def delete(self, namespace: str, application: str, schedule: str) -> None:
        """Delete a schedule.

        Raises
        ------
        NotFoundError
            If there is no such schedule.
        """
        key = (namespace, application, schedule)
        self._schedules.require(*key)
        self._schedules.delete(*key)
        self._triggers.delete_all(Range.prefix(key))

    def delete_of(self, namespace: str, application: str) -> int:
        """Delete the schedules of an application, and return their number."""
        within = Range.prefix((namespace, application))
        self._triggers.delete_all(within)
        return self._schedules.delete_all(within)

    def by_trigger(self, trigger: str) -> list[Schedule]:
        """Return the schedules that have a trigger, in key order."""
        with self._triggers.find("trigger", trigger) as found:
            keys = [(one.namespace, one.application, one.schedule) for one in found]
        return self._schedules.get_many(keys)

    def page(self, namespace: str, application: str, *, cursor: str | None = None, limit: int = 100) -> Page[Schedule]:
        """Return a page of an application's schedules, by name."""
        return self._schedules.page(Range.prefix((namespace, application)), cursor=cursor, limit=limit)

    def drop_program(self, ref: ProgramRef, *, at: dt.datetime | None = None) -> list[Schedule]:
        """Remove the triggers of a program, and return the schedules that were deleted or changed.

        A schedule that can no longer fire is deleted; one that needs any of its triggers only loses this one.
        """
        trigger, now = program_trigger(ref), self._context.now(at)
        self._context.exclude(f"trigger/{trigger}")
        affected = self.by_trigger(trigger)
        for schedule in affected:
            key = (schedule.namespace, schedule.application, schedule.schedule)
            rest = [one for one in self.triggers(*key) if one != trigger]
            definition = schedule.definition
            if rest and isinstance(definition, dict) and definition.get("triggers") == "or":
                self.update(*key, definition, triggers=rest, at=now)
            else:
                self.delete(*key)
        return affected

    @property
    def _schedules(self) -> Records[Schedule]:
        return self._context.records(SCHEDULES)

    @property
    def _triggers(self) -> Records[ScheduleTrigger]:
        return self._context.records(SCHEDULE_TRIGGERS)

    def _put_triggers(self, schedule: Schedule, triggers: list[str]) -> None:
        for trigger in triggers:
            if trigger.startswith(_PROGRAM):
                self._context.share(f"trigger/{trigger}")
        self._triggers.put_many(
            ScheduleTrigger(
                namespace=schedule.namespace,
                application=schedule.application,
                schedule=schedule.schedule,
                sequence=number,
                trigger=trigger,
            )
            for number, trigger in enumerate(triggers)
        )


def _checked(triggers: Iterable[str]) -> list[str]:
    found = list(dict.fromkeys(check_texts(triggers, "triggers")))
    for trigger in found:
        if not 1 <= len(trigger.encode()) <= MAX_TRIGGER_BYTES or "\0" in trigger:
            raise ValueError(f"trigger {trigger!r} is not a text of 1 to {MAX_TRIGGER_BYTES:,} bytes without NUL")
    return found
