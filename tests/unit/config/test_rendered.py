"""A configuration as files: packed, mixed, cut and damaged, and read back."""

import gzip
import json
import zlib
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.config import rendered as config_rendered
from pillion_sidecar.config.rendered import (
    MOST_TEXT_BYTES,
    CorruptRevisionError,
    Packer,
    TooLarge,
    complete_revisions,
    is_part,
    item_text,
    items,
    pack,
    render,
    render_items,
    revision_of,
    unpack,
)
from support.resources import alert_filter, destination, secret, service, subscription

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def resources() -> list[dict[str, Any]]:
    return [
        subscription(),
        destination("zulu"),
        destination("alpha"),
        alert_filter(),
        service(),
        secret("token", {"token": "é✓"}),
    ]


def noise(size: int) -> str:
    """Text that compresses badly."""
    digits = (zlib.crc32(number.to_bytes(4, "big")) for number in range(size // 8 + 1))
    return "".join(f"{digit:08x}" for digit in digits)[:size]


def test_the_same_resources_make_the_same_text_in_whatever_order() -> None:
    first = render(resources())
    turned = [dict(reversed(one.items())) for one in reversed(resources())]
    assert render(turned) == first
    document = json.loads(first)
    assert (document["apiVersion"], document["kind"]) == ("v1", "List")
    names = [(one["kind"], one["metadata"]["name"]) for one in document["items"]]
    assert names == sorted(names)
    assert len(names) == 6


def test_items_that_were_serialised_before_make_the_same_text() -> None:
    ordered = sorted(resources(), key=lambda one: (one["kind"], one["metadata"]["name"]))
    assert render_items([item_text(one) for one in ordered]) == render(resources())


@given(st.lists(JSON_VALUES, max_size=5))
def test_items_are_read_back_one_by_one(values: list[Any]) -> None:
    text = render_items([item_text({"value": value}) for value in values])
    assert [item["value"] for item in items(text)] == values
    assert [item["value"] for item in json.loads(text)["items"]] == values


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda text: text[:-3], "a comma or the end"),
        (lambda text: text + "x", "after its end"),
        (lambda text: text.replace("List", "Lost"), "does not begin"),
        (lambda text: text.replace(",\n", "\n", 1), "a comma or the end"),
        (lambda text: text.replace("[\n", "[" * 100_000, 1), "too deep"),
        (lambda text: text.replace("}", "", 1), "Expecting"),
    ],
)
def test_a_text_of_another_form_is_a_value_error(damage: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        list(items(damage(render(resources()))))


def test_a_text_becomes_one_file_or_as_many_as_it_takes() -> None:
    text = render(resources())
    whole, cut = pack(text), pack(text, part_size=100)
    assert [name for name, _ in whole.files] == [f"{whole.revision}.part-01-of-01"]
    assert whole.revision == cut.revision == revision_of(text)
    assert len(cut.files) > 2
    assert all(len(content) <= 100 for _, content in cut.files)
    assert cut.files[-1][0].endswith(f".part-{len(cut.files):02}-of-{len(cut.files):02}")
    assert pack(text, part_size=100) == cut
    for rendered in (whole, cut):
        unpacked = unpack(dict(rendered.files))
        assert unpacked is not None
        assert (unpacked.revision, unpacked.text) == (rendered.revision, text)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(20, 200))
def test_what_was_packed_is_unpacked(text: str, size: int) -> None:
    rendered = pack(text, part_size=size, most_parts=99)
    unpacked = unpack(dict(reversed(rendered.files)))
    assert unpacked is not None
    assert unpacked.text == text


# What is inserted, replaced or removed.
edits = st.lists(st.tuples(st.integers(0, 9), st.text(max_size=9), st.integers(0, 1)), max_size=6)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=9), edits)
def test_versions_that_are_packed_in_turn_are_unpacked(
    lines: list[str], edits: list[tuple[int, str, int]]
) -> None:
    packer = Packer()
    with patch.object(config_rendered, "TOGETHER", 2):
        for place, text, removed in edits:
            lines[place : place + removed] = [text]
            rendered = packer.pack(lines)
            assert rendered == Packer().pack(lines)
            unpacked = unpack(dict(rendered.files))
            assert unpacked is not None
            assert unpacked.text == render_items(lines)
            assert unpacked.revision == rendered.revision == revision_of(unpacked.text)


def test_only_what_has_changed_is_compressed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_rendered, "TOGETHER", 2)
    texts, blocks = list[str](), config_rendered._blocks

    def compressed(text: str) -> bytes:
        texts.append(text)
        return blocks(text)

    monkeypatch.setattr(config_rendered, "_blocks", compressed)
    packer = Packer()
    packer.pack(["a", "b", "c", "d", "e"])
    assert {"a,\nb", "c,\nd", "e"} < set(texts)
    texts.clear()
    packer.pack(["a", "b", "x", "d", "e"])
    assert {"a,\nb", "x,\nd", "e"} & set(texts) == {"x,\nd"}


def test_what_only_fits_in_one_piece_is_compressed_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [noise(100)] * 2_000
    most = len(gzip.compress(render_items(items).encode(), compresslevel=6, mtime=0))
    monkeypatch.setattr(config_rendered, "PART_SIZE", most)
    rendered = Packer().pack(items, most_parts=1)
    assert [len(content) for _, content in rendered.files] == [most]
    monkeypatch.setattr(config_rendered, "PART_SIZE", most - 1)
    with pytest.raises(TooLarge):
        Packer().pack(items, most_parts=1)


def test_neither_form_shows_what_it_holds() -> None:
    text = render([secret("token", {"token": "hush"})])
    rendered = pack(text)
    assert "hush" not in repr(rendered)
    assert "hush" not in repr(unpack(dict(rendered.files)))


def test_what_takes_too_many_files_is_refused_with_its_size() -> None:
    text = noise(10_000)
    needed = sum(len(content) for _, content in pack(text).files)
    with pytest.raises(TooLarge, match=f"takes {needed:,} bytes compressed.*the 2,000") as caught:
        pack(text, part_size=1000, most_parts=2)
    assert (caught.value.bytes, caught.value.most) == (needed, 2000)


def test_more_text_than_a_deliverer_reads_is_refused() -> None:
    with pytest.raises(TooLarge, match="takes 67,108,865 bytes, more"):
        pack(" " * (MOST_TEXT_BYTES + 1))


def test_the_complete_revision_is_found_among_files_of_others() -> None:
    old = pack(noise(3000), part_size=500)
    new = pack(noise(3001), part_size=500)
    mixed = dict(old.files[:2]) | dict(new.files[2:]) | {"operator-token": b"x", "a.yaml": b""}
    assert unpack(mixed) is None
    assert complete_revisions(mixed) == {}
    mixed |= dict(new.files)
    unpacked = unpack(mixed)
    assert unpacked is not None
    assert unpacked.revision == new.revision


def test_parts_of_another_count_do_not_complete_a_revision() -> None:
    text = noise(3000)
    few, many = pack(text, part_size=900), pack(text, part_size=500)
    assert len(few.files) != len(many.files)
    assert unpack(dict(few.files[1:]) | dict(many.files[:-1])) is None


def test_of_several_complete_revisions_the_one_named_first_is_taken() -> None:
    one, other = pack("one"), pack("other")
    for first, second in ((one, other), (other, one)):
        unpacked = unpack(dict(first.files) | dict(second.files))
        assert unpacked is not None
        assert unpacked.revision == first.revision


@pytest.mark.parametrize(
    "name",
    [
        "0123456789abcdef.part-1-of-1",
        "0123456789abcdef.part-01-of-01.gz",
        "0123456789ABCDEF.part-01-of-01",
        "0123456789abcde.part-01-of-01",
        ".0123456789abcdef.part-01-of-01",
    ],
)
def test_other_names_are_no_parts(name: str) -> None:
    assert not is_part(name)
    assert complete_revisions([name]) == {}


@pytest.mark.parametrize("name", ["part-00-of-00", "part-00-of-01", "part-02-of-01"])
def test_a_part_outside_its_count_completes_nothing(name: str) -> None:
    assert complete_revisions([f"0123456789abcdef.{name}"]) == {}


def damaged(content: bytes, text: str = "text") -> dict[str, bytes]:
    return {f"{revision_of(text)}.part-01-of-01": content}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"no gzip", "not in gzip's form"),
        (b"", "cut off"),
        (gzip.compress(b"text", mtime=0)[:-4], "cut off"),
        (gzip.compress(b"text", mtime=0) + b"more", "longer than its text"),
        (gzip.compress(b"texts", mtime=0), "another text"),
        (gzip.compress(b"text", mtime=0)[:-6] + b"\0\0\0\0\0\0", "not in gzip's form"),
    ],
)
def test_a_damaged_file_is_named_not_believed(content: bytes, complaint: str) -> None:
    with pytest.raises(CorruptRevisionError, match=f"{revision_of('text')} .*{complaint}"):
        unpack(damaged(content))


def test_a_few_bytes_that_hold_gigabytes_are_not_inflated() -> None:
    stream = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(stream.compress(bytes(1024 * 1024)) for _ in range(80)) + stream.flush()
    with pytest.raises(CorruptRevisionError, match="more than 64 MiB"):
        unpack(damaged(bomb))


@given(
    st.dictionaries(
        st.from_regex(r"[0-9a-f]{16}\.part-0[0-2]-of-0[12]", fullmatch=True),
        st.binary(max_size=30),
        max_size=4,
    )
)
def test_whatever_lies_there_is_nothing_or_corrupt(files: dict[str, bytes]) -> None:
    try:
        unpacked = unpack(files)
    except CorruptRevisionError:
        return
    assert unpacked is None
