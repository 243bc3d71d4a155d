"""Registers the format with Spark's look-up, so that every thread of the driver finds it.

Spark looks up a data source in Python in the active session, and `df.write.save()` has none in a thread other than the
one that built the session. Spark then looks for a class `structable.DefaultSource`, as for every format. The class in
`java/DefaultSource.java` takes the data source from the default session.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from .optimizer_rules import java_source

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway, JavaObject

_log = logging.getLogger("structable.spark")

_CLASS = "DefaultSource"


@contextmanager
def session_active(spark: SparkSession) -> Iterator[None]:
    """Make a session the active one of this thread, in which Spark looks for a format before another is registered."""
    sessions = _gateway(spark).jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


@contextmanager
def format_hidden(spark: SparkSession) -> Iterator[None]:
    """Hide the class from this thread: Spark does not register a data source whose name it finds elsewhere."""
    gateway = _gateway(spark)
    if not _is_known(gateway):
        yield
        return
    thread = gateway.jvm.java.lang.Thread.currentThread()
    loader = thread.getContextClassLoader()
    thread.setContextClassLoader(loader.getParent())
    try:
        yield
    finally:
        thread.setContextClassLoader(loader)


def let_threads_find_the_format(spark: SparkSession) -> None:
    """Add the class to the application's class loader, unless it is there.

    If Java does not allow that, writes with `save()` fail in other threads, as they do for every format in Python; a
    warning in the log says so.
    """
    try:
        define_classes(spark, _CLASS)
    except (Py4JError, TypeError) as error:  # TypeError: py4j has no such class or method
        reason = str(error).strip().splitlines()[0]
        _log.warning("writes of the format structable will fail in threads without an active session: %s", reason)


def define_classes(spark: SparkSession, name: str, values: Mapping[str, str] = MappingProxyType({})) -> None:
    """Add a class of the folder `java`, and those nested in it, to the package `structable` of the application.

    Spark looks up names of classes in the class loader of the application. Does nothing if the class is there. Janino,
    which Spark brings for its code generation, compiles the source; it knows no generics and no lambdas. Each `@NAME@`
    in it is replaced by its value. Py4JError or TypeError if Janino, Spark or Java refuses it.
    """
    gateway, loader = _gateway(spark), class_loader(spark)
    if _is_known(gateway, f"structable.{name}"):
        return
    compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.setTargetVersion(8)  # static methods of interfaces
    compiler.cook("package structable;\n" + java_source((name,), values))
    codes = compiler.getBytecodes()
    define = _definer(gateway)
    for made in sorted(codes.keySet().toArray()):  # a nested class after its outer one
        code = codes[made]
        arguments = gateway.new_array(gateway.jvm.java.lang.Object, 4)
        arguments[0], arguments[1], arguments[2], arguments[3] = made, code, 0, len(code)
        define.invoke(loader, arguments)


def class_loader(spark: SparkSession) -> JavaObject:
    """Return the application's class loader."""
    return _gateway(spark).jvm.java.lang.Thread.currentThread().getContextClassLoader()


def _definer(gateway: JavaGateway) -> JavaObject:
    """Return the method by which a class loader defines a class; it is protected, and Spark has its package opened."""
    lang = gateway.jvm.java.lang
    kinds = gateway.new_array(lang.Class, 4)
    kinds[0], kinds[1] = lang.Class.forName("java.lang.String"), lang.Class.forName("[B")
    kinds[2] = kinds[3] = lang.Integer.TYPE
    method = lang.Class.forName("java.lang.ClassLoader").getDeclaredMethod("defineClass", kinds)
    method.setAccessible(True)
    return method


def _is_known(gateway: JavaGateway, name: str = f"structable.{_CLASS}") -> bool:
    """Return whether this thread finds a class; an exception from Java takes many messages, so Spark is asked first."""
    try:
        return bool(gateway.jvm.org.apache.spark.util.Utils.classIsLoadable(name))
    except (Py4JError, TypeError):  # this Spark has no such method
        try:
            gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
        except Py4JError:
            return False
        return True


def _gateway(spark: SparkSession) -> JavaGateway:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    return gateway
