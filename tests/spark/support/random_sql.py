"""Random queries of tables `{emp}` and `{pairs}`, whose rows are the same however they are computed."""

from __future__ import annotations

from decimal import Decimal
from random import Random

from structable.spi import Field, Storage, TableSpecification

EMP = TableSpecification(
    "emp",
    [Field.long("id"), Field.long("boss"), Field.string("team"), Field.long("cents"), Field.decimal("price", 12, 2)],
    primary_key=["id"],
    indexes=["boss", "team"],
)
PAIRS = TableSpecification(
    "pairs",
    [Field.string("team"), Field.long("number"), Field.long("emp")],
    primary_key=["team", "number"],
    indexes=["emp"],
)
TEAMS = ["a", "b", "c"]
EMPLOYEES = 60

SETTINGS = {
    "spark.sql.adaptive.enabled": ["true", "false"],
    "spark.sql.exchange.reuse": ["true", "true", "false"],
    "spark.sql.autoBroadcastJoinThreshold": ["10MB", "10MB", "-1"],
    "spark.sql.optimizer.dynamicPartitionPruning.reuseBroadcastOnly": ["true", "false"],
    # Steps of a recursion with more rows have another form, of which Spark takes no keys.
    "spark.sql.cteRecursionAnchorRowsLimitToConvertToLocalRelation": ["100", "4", "4", "0"],
}
"""Settings of Spark's planner, and values to choose from."""


def create_tables(storage: Storage) -> None:
    """Create the tables: employees with their bosses, a tree, and numbered members of teams."""
    chance = Random(1)
    for spec in (EMP, PAIRS):
        storage.admin.create(spec)
    storage.table("emp").upsert_many(
        {
            "id": number,
            "boss": None if number == 1 else max(1, number // 2 - chance.randrange(3)),
            "team": chance.choice([*TEAMS, None]),
            "cents": chance.randrange(40),
            "price": Decimal(chance.randrange(10_000)) / 100,
        }
        for number in range(1, EMPLOYEES + 1)
    )
    storage.table("pairs").upsert_many(
        {"team": team, "number": number, "emp": chance.randrange(1, EMPLOYEES + 10)}
        for team in TEAMS
        for number in range(15)
    )


def random_query(chance: Random) -> str:
    """Return a query; its tables are `{emp}` and `{pairs}`."""
    return _Query(chance).text()


class _Query:
    """Each relation has the columns `id`, `boss`, `team`, `cents`."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance

    def text(self) -> str:
        kind = self.chance.choice(["recursive", "recursive", "twice", "plain"])
        if kind == "plain":
            return self._result(f"({self._relation(3)})")
        if kind == "recursive":
            begin = f"with recursive w as ({self._recursion()}) "
        else:
            begin = f"with w as ({self._relation(2)}) "
        a, b = (f"select id, boss, team, cents from w{self._where()}" for _ in range(2))
        if self.chance.random() < 0.5:
            return begin + self._result(f"({a})")
        return begin + self._result(f"({self._combined(a, b)})")

    def _recursion(self) -> str:
        first = self.chance.randrange(1, 6)
        anchor = self.chance.choice(
            [
                "select id, boss, team, cents, 0 as d from {emp} where boss is null",
                f"select id, boss, team, cents, 0 as d from ({self._rows()}) where id % 20 = 3",
                f"select id, boss, team, cents, 0 as d from {{emp}} where id in (2, {self._number()})",
                f"select {first}L as id, {self._number()}L as boss, 'a' as team, 1L as cents, 0 as d",
                f"select * from values ({first}L, 1L, 'b', 5L, 0), {self._value(', 0')} as v(id, boss, team, cents, d)",
            ]
        )
        on = self.chance.choice(["e.boss = w.id", "e.boss = w.id", "e.id = w.boss", "e.id = w.boss + w.id"])
        joined = self.chance.choice(["w join ({}) e", "({}) e join w"]).format(self._rows())
        if self.chance.random() < 0.3:
            joined += f" on {on} join ({self._rows()}) f"
            on = "f.id = e.id"
        condition = self.chance.choice(["", "", " and w.d < 3", " and e.cents > w.cents", self._scalar("e.cents")])
        hint = self.chance.choice(["", "/*+ broadcast(w) */ ", "/*+ broadcast(e) */ "])
        step = f"select {hint}e.id, e.boss, e.team, e.cents, w.d + 1 from {joined} on {on}{condition}"
        return f"{anchor} union all {step}"

    def _rows(self) -> str:
        base = f"select id, boss, team, cents from {{emp}}{self._where()}"
        return self.chance.choice(
            [
                base,
                base,
                f"{base} order by id{self.chance.choice(['', ' desc'])} limit {self._number()}",
                f"{base} order by boss, id limit {self._number()}",
                f"select id, max(boss) as boss, min(team) as team, sum(cents) as cents from ({base}) group by id",
                f"select * from ({base}) where id < 20 union all select id, boss, team, 1L from {{emp}} where id >= 20",
            ]
        )

    def _relation(self, depth: int) -> str:
        if depth == 0:
            where = self._where("emp")
            return self.chance.choice(
                [
                    self._rows(),
                    f"select emp as id, number as boss, team, number * 7 % 50 as cents from {{pairs}}{where}",
                    f"select * from values {self._value()}, {self._value()} as v(id, boss, team, cents)",
                ]
            )
        one = self._relation(depth - 1)
        return self.chance.choice(
            [
                f"select distinct * from ({one})",
                f"select * from ({one}) order by id, boss, team, cents limit {self._number()}",
                f"select max(id) as id, boss, min(team) as team, sum(cents) as cents from ({one}) group by boss",
                f"select * from ({one}) where true{self._scalar('cents')}",
                self._combined(one, self._relation(self.chance.randrange(depth))),
                self._combined(one, one),
            ]
        )

    def _combined(self, one: str, other: str) -> str:
        a, b = self.chance.choice(["id", "boss"]), self.chance.choice(["id", "boss"])
        hint = self.chance.choice(["", "/*+ broadcast(a) */ ", "/*+ broadcast(b) */ "])
        few = self.chance.choice(["", f" where id < {self._number()}", " where cents % 3 = 1"])
        return self.chance.choice(
            [
                f"select {hint}a.id, b.boss, a.team, b.cents from ({one}) a join (select * from ({other}){few}) b "
                f"on a.{a} = b.{b}",
                f"select {hint}a.* from ({one}) a join {{pairs}} b on a.team = b.team and a.{a} = b.number",
                f"select {hint}a.* from ({one}) a left join (select * from ({other}){few}) b on a.{a} = b.{b}",
                f"select {hint}a.* from ({one}) a left anti join ({other}) b on a.{a} = b.{b}",
                f"select * from ({one}) where {a} in (select {b} from ({other}){few})",
                f"select * from ({one}) union all select * from ({other}){few}",
                f"select * from ({one}) a where exists (select 1 from ({other}) b where a.{a} = b.{b} and b.id < 9)",
            ]
        )

    def _result(self, relation: str) -> str:
        return self.chance.choice(
            [
                f"select * from {relation}",
                f"select count(*), count(boss), sum(cents), max(team) from {relation}",
                f"select team, count(*), min(id), max(cents) from {relation} group by team",
                f"select r.id, r.cents, p.price from {relation} r join {{emp}} p on r.id = p.id",
                f"select sum(p.price), count(distinct r.id) from {relation} r join {{emp}} p on r.boss = p.id",
                f"select * from {relation} order by id, boss, team, cents limit {self._number()}",
                f"select count(*) from (select * from {relation} limit {self._number()})",
            ]
        )

    def _where(self, key: str = "id") -> str:
        return self.chance.choice(
            [
                "",
                "",
                "",
                "",
                f" where {key} < {self._number()}",
                f" where {key} > {self._number()} or team = 'b'",
                " where team in ('a', 'c')",
                f" where {key} % 3 <> 1 and team is not null",
                f" where {key} in ({self._number()}, {self._number()}, {self._number()})",
            ]
        )

    def _scalar(self, column: str) -> str:
        function = self.chance.choice(["max(cents)", "min(cents) + 10", "count(*)"])
        return f" and {column} <= (select {function} from ({self._rows()}))"

    def _value(self, more: str = "") -> str:
        return f"({self._number()}L, {self._number()}L, '{self.chance.choice(TEAMS)}', {self._number()}L{more})"

    def _number(self) -> int:
        return self.chance.randrange(1, EMPLOYEES)
