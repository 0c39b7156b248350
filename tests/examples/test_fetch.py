"""Downloading, from a server on this machine."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from examples.data import cifar10, load, mnist, ptb, reviews
from examples.data.fetch import fetch
from examples.data.files import Download, Source

CONTENT = b"one two\nthree\n" * 5000


class Server(ThreadingHTTPServer):
    """Serves ``files``; ``failures`` are the statuses of the next answers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.failures: list[int] = []
        self.asked: list[str] = []
        self.home = f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        content = self.server.files.get(self.path[1:])
        status = self.server.failures.pop(0) if self.server.failures else 200
        self.send_response(404 if content is None else status)
        body = content if content is not None and status == 200 else b"sorry"
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUANTAL_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    return tmp_path / "cache"


def source(*homes: str, content: bytes = CONTENT) -> Source:
    digest = f"md5:{hashlib.md5(content).hexdigest()}"
    download = Download("text.txt", tuple(f"{home}text.txt" for home in homes), digest)
    return Source("A text", ("text",), ("text.txt",), (download,))


def everything(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file()]


def test_a_file_is_downloaded_once(server: Server, cache: Path) -> None:
    server.files["text.txt"] = CONTENT
    (file,) = source(server.home).read(None)
    assert file.content == CONTENT
    assert file.path == str(cache / "text" / "text.txt")
    assert source(server.home).read(None) == [file]
    assert server.asked == ["/text.txt"]


def test_a_damaged_cache_is_repaired(server: Server, cache: Path) -> None:
    server.files["text.txt"] = CONTENT
    fetch(source(server.home))
    (cache / "text" / "text.txt").write_bytes(CONTENT[:-1])
    assert source(server.home).read(None)[0].content == CONTENT


def test_a_wrong_checksum_is_refused_and_nothing_is_left(server: Server, cache: Path) -> None:
    server.files["text.txt"] = CONTENT[:-1]
    with pytest.raises(FileNotFoundError, match="not the expected file, by its checksum"):
        fetch(source(server.home))
    assert everything(cache) == []


def test_a_passing_failure_is_tried_again(server: Server, cache: Path) -> None:
    server.files["text.txt"] = CONTENT
    server.failures = [503, 503]
    assert source(server.home).read(None)[0].content == CONTENT
    assert len(server.asked) == 3


def test_the_next_address_is_tried(server: Server, cache: Path) -> None:
    server.files["mirror/text.txt"] = CONTENT
    assert source(server.home, server.home + "mirror/").read(None)[0].content == CONTENT
    assert server.asked[-1] == "/mirror/text.txt"


def test_what_cannot_be_had_is_one_error_that_says_what_to_do(cache: Path) -> None:
    with Server() as closed:
        home = closed.home
    with pytest.raises(FileNotFoundError) as caught:
        source(home).read(None)
    assert str(caught.value) == (
        f"A text: text.txt is not in {cache / 'text'} and could not be downloaded "
        f"({home}text.txt: out of reach, ConnectionError). Give as --data a folder that holds "
        f"text.txt, packed or unpacked, itself or in a folder text. Download from {home}text.txt"
    )
    assert everything(cache) == []


def test_a_status_is_named(server: Server, cache: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"text\.txt: status 404"):
        fetch(source(server.home))


def archive(**contents: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"../{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def packed(home: str, wanted: bytes) -> Source:
    """An archive whose checksum nobody has published."""
    right = hashlib.sha256(wanted).hexdigest()
    download = Download("all.tar.gz", (home + "all.tar.gz",), contents=right, unpacked=20_000)
    return Source("An archive", ("packed",), ("wanted",), (download,))


def test_an_archive_without_a_published_checksum_is_known_by_its_contents(
    server: Server, cache: Path, tmp_path: Path
) -> None:
    wanted = packed(server.home, wanted=b"one")
    server.files["all.tar.gz"] = archive(wanted=b"two")
    with pytest.raises(FileNotFoundError, match="checksum"):
        wanted.read(None)
    assert everything(cache) == []
    server.files["all.tar.gz"] = archive(wanted=b"one", other=b"two")
    assert wanted.read(None)[0].content == b"one"
    # Nothing is unpacked, so nothing lands outside.
    assert everything(tmp_path) == ["all.tar.gz"]


@pytest.mark.parametrize("damaged", [archive(wanted=b"two"), archive(other=b"one"), b"no archive"])
def test_contents_are_checked_in_the_cache_as_well(
    damaged: bytes, server: Server, cache: Path
) -> None:
    wanted = packed(server.home, wanted=b"one")
    server.files["all.tar.gz"] = archive(wanted=b"one")
    assert wanted.read(None)[0].content == b"one"
    assert wanted.read(None)[0].content == b"one"
    assert len(server.asked) == 1
    (cache / "packed" / "all.tar.gz").write_bytes(damaged)
    assert wanted.read(None)[0].content == b"one"
    assert len(server.asked) == 2


def test_no_more_is_unpacked_than_there_can_be(server: Server, cache: Path, tmp_path: Path) -> None:
    wanted = packed(server.home, wanted=b"one")
    server.files["all.tar.gz"] = archive(other=bytes(10_000_000), wanted=b"one")
    with pytest.raises(FileNotFoundError, match="checksum"):
        wanted.read(None)
    assert everything(cache) == []
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "all.tar.gz").write_bytes(server.files["all.tar.gz"])
    with pytest.raises(ValueError, match="expected at most 20000 bytes unpacked"):
        wanted.read(folder)


def test_a_member_is_no_larger_than_the_archive(
    server: Server, cache: Path, tmp_path: Path
) -> None:
    """A sparse file of a terabyte, of which one byte is there."""
    header = bytearray(tarfile.TarInfo("wanted").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"%011o\0" % 1  # bytes that are there
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[386:410] = b"%011o\0%011o\0" % (0, 1)  # where they are, and how many
    header[483:495] = b"\x80" + (2**40).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:155] = b"%06o\0" % sum(header)
    server.files["all.tar.gz"] = gzip.compress(bytes(header) + bytes(512 * 3))
    with pytest.raises(FileNotFoundError, match="checksum"):
        packed(server.home, wanted=b"one").read(None)
    assert everything(cache) == []


@pytest.mark.parametrize("size", [b"\x80" + b"\xff" * 11, b"x" * 12])
def test_an_archive_with_odd_numbers_is_not_the_expected_one(size: bytes, tmp_path: Path) -> None:
    header = bytearray(tarfile.TarInfo("wanted").tobuf())
    header[124:136], header[148:156] = size, b" " * 8
    header[148:155] = b"%06o\0" % sum(header)
    (tmp_path / "all.tar.gz").write_bytes(gzip.compress(bytes(header) + bytes(1024)))
    with pytest.raises(ValueError, match=r"all\.tar\.gz: expected a"):
        packed("https://nowhere/", wanted=b"one").read(tmp_path)


def test_a_folder_wins_and_is_not_written_to(server: Server, cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    with pytest.raises(FileNotFoundError, match="A text: nothing of it is in "):
        source(server.home).read(folder)
    assert everything(tmp_path) == []
    (folder / "text.txt").write_bytes(b"mine")
    assert source(server.home).read(folder)[0].content == b"mine"
    assert server.asked == []
    assert everything(tmp_path) == ["text.txt"]


def as_published(name: str, folder: Path) -> bytes:
    """The test data in the form in which the set is published."""
    if name == "cifar-10-binary.tar.gz":
        batches = sorted((folder / "cifar10").glob("*.bin"))
        return archive(
            **{f"cifar-10-batches-bin/{path.name}": path.read_bytes() for path in batches}
        )
    if found := list(folder.rglob(name)):
        return found[0].read_bytes()
    (plain,) = folder.rglob(name.removesuffix(".gz"))
    return gzip.compress(plain.read_bytes())


@pytest.mark.parametrize(
    ("name", "module"),
    [("mnist", mnist), ("cifar10", cifar10), ("ptb", ptb), ("reviews", reviews)],
)
def test_every_set_is_read_as_it_is_published(
    name: str,
    module: ModuleType,
    data_folder: Path,
    server: Server,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    downloads = []
    for one in module.SOURCE.downloads:
        content = server.files[one.name] = as_published(one.name, data_folder)
        digest = hashlib.sha256(content).hexdigest()
        downloads.append(Download(one.name, (server.home + one.name,), digest))
    monkeypatch.setattr(module, "SOURCE", replace(module.SOURCE, downloads=tuple(downloads)))
    fetched, given = load(name, seed=1), load(name, data_folder, seed=1)
    assert len(server.asked) == len(downloads)
    np.testing.assert_array_equal(fetched.train.x, given.train.x)
    np.testing.assert_array_equal(fetched.test.x, given.test.x)


@pytest.mark.parametrize("module", [mnist, cifar10, ptb, reviews])
def test_every_download_is_checked(module: ModuleType) -> None:
    for one in module.SOURCE.downloads:
        assert one.digest or (one.contents and one.unpacked)
        assert all(url.startswith("https://") for url in one.urls)


def test_progress_is_shown_on_a_terminal(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    server.files["text.txt"] = CONTENT
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, for rich
    fetch(source(server.home))
    assert "70.0/70.0 kB" in capfd.readouterr().err
