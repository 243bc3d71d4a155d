"""Adds structable's rules to the optimizer and the analyzer of a Spark session, from their source in Java."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject


def java_source(names: Iterable[str], values: Mapping[str, str]) -> str:
    """Return classes of the folder `java` as one text for Janino, each `@NAME@` in it replaced by its value."""
    imports: dict[str, None] = {}
    classes: list[str] = []
    for name in names:
        text = (resources.files(__package__) / "java" / f"{name}.java").read_text(encoding="utf-8")
        lines = text.splitlines()
        imports.update(dict.fromkeys(line for line in lines if line.startswith("import ")))
        classes.extend(line for line in lines if not line.startswith("import "))
    source = "\n".join([*sorted(imports), *classes])
    for name, value in values.items():
        source = source.replace(f"@{name}@", value)
    return source


def ensure_rule(
    spark: SparkSession,
    name: str,
    java: str,
    *,
    pre_cbo: str | None = None,
    last: Iterable[str] = (),
    prepare: Callable[[JavaObject], None] | None = None,
) -> str | None:
    """Add a rule to the optimizer of a session and of sessions derived from it; return the reason if that fails.

    The class `name` has a nested class `Builder`, a function from a session to the rule. Janino, which Spark ships for
    its code generation, compiles the source `java`; it does not support generics. The class `pre_cbo` in the source is
    a rule that runs once, after all others, before sources take their filters; `last` are rules without builders that
    run at the end. `prepare` gets the class loader of the rules, even if they were there before.
    """
    try:
        if not has_rule(spark, name):
            add_rule(spark, name, java, pre_cbo=pre_cbo, last=last)
        if not has_rule(spark, name):
            return "its optimizer takes no further rules"
        if prepare is not None:
            prepare(_loader_of(spark, name))
        return None
    except (Py4JError, TypeError) as error:  # TypeError: py4j has no such class or method
        return reason_of(error)


def reason_of(error: Exception) -> str:
    """Return, in one line, the reason why Spark refuses a class or a rule."""
    cause = error.java_exception.toString() if isinstance(error, Py4JJavaError) else error  # a CompileException's line
    return str(cause).strip().splitlines()[0]


def has_rule(spark: SparkSession, name: str) -> bool:
    """Whether a session's optimizer has a rule."""
    # Check the optimizer itself: a rule that it ignored would lead to wrong results.
    rules = spark._jsparkSession.sessionState().optimizer().batches().mkString()
    return name in str(rules)


def add_rule(
    spark: SparkSession,
    name: str,
    java: str,
    *,
    pre_cbo: str | None = None,
    last: Iterable[str] = (),
) -> None:
    """Add a rule to a session's optimizer, as `ensure_rule` describes it."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    jvm = gateway.jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(spark._jsparkSession.getClass().getClassLoader())
    compiler.cook(java)
    loader = compiler.getClassLoader()
    inject_rule(spark, name, loader)
    if pre_cbo is not None:
        inject_pre_cbo_rule(spark, pre_cbo, loader)
    methods = spark._jsparkSession.experimental()
    for one in last:
        getattr(methods, "extraOptimizations_$eq")(
            methods.extraOptimizations().appended(instance_of(spark, one, loader))
        )


def inject_rule(spark: SparkSession, name: str, loader: JavaObject) -> None:
    """Add a rule, whose class a class loader has, to a session's optimizer."""
    spark._jsparkSession.extensions().injectOptimizerRule(instance_of(spark, f"{name}$Builder", loader))


def inject_pre_cbo_rule(spark: SparkSession, name: str, loader: JavaObject) -> None:
    """Add a rule that runs once, when the others are done, before sources take their filters."""
    spark._jsparkSession.extensions().injectPreCBORule(instance_of(spark, f"{name}$Builder", loader))


def inject_early_rule(spark: SparkSession, name: str, loader: JavaObject) -> None:
    """Add a rule to the analyzer of a session and of sessions derived from it, unless it is present.

    It sees statements before their names are resolved. TypeError if the analyzer takes no further rules.
    """
    session = spark._jsparkSession
    extensions, builder = session.extensions(), instance_of(spark, f"{name}$Builder", loader)
    if name not in str(extensions.buildHintResolutionRules(session).mkString()):
        extensions.injectHintResolutionRule(builder)
    analyzer = session.sessionState().analyzer()
    if not _has_early_rule(analyzer, name):  # an earlier query made it, with the rules it had then
        field = _field(analyzer.getClass(), "hintResolutionRules")
        field.setAccessible(True)
        field.set(analyzer, analyzer.hintResolutionRules().appended(builder.apply(session)))
    if not _has_early_rule(analyzer, name):
        raise TypeError("its analyzer takes no further rules")


def _has_early_rule(analyzer: JavaObject, name: str) -> bool:
    return name in str(analyzer.batches().mkString())


def _field(declaring: JavaObject, name: str) -> JavaObject:
    """Return a field of a class or of one of its superclasses."""
    while declaring is not None:
        for field in declaring.getDeclaredFields():
            if field.getName() == name:
                return field
        declaring = declaring.getSuperclass()
    raise TypeError(f"its analyzer has no {name}")


def _loader_of(spark: SparkSession, name: str) -> JavaObject:
    """Return the class loader of a rule that a session's optimizer has."""
    session = spark._jsparkSession
    rules = session.extensions().buildOptimizerRules(session)
    for place in range(rules.size()):
        kind = rules.apply(place).getClass()
        if kind.getName() == name:
            return kind.getClassLoader()
    raise TypeError(f"its optimizer has no rule {name}")


def instance_of(spark: SparkSession, name: str, loader: JavaObject) -> JavaObject:
    """Return a new instance of a class that a class loader has."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    lang = gateway.jvm.java.lang
    constructor = loader.loadClass(name).getDeclaredConstructor(gateway.new_array(lang.Class, 0))
    return constructor.newInstance(gateway.new_array(lang.Object, 0))
