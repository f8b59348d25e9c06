"""How the commands that serve are told to log."""

import argparse
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from pillion_cli.arguments import Options
from pillion_cli.commands import publish, sidecar
from pillion_cli.exits import CommandError, Exit
from pillion_cli.main import main
from pillion_cli.serving import add_logging_arguments, check_listeners, start_logging
from pillion_sidecar.config.addresses import Address


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_logging_arguments(Options(parser))
    return parser.parse_args(arguments)


def test_the_log_goes_to_a_file_that_rolls_as_told(tmp_path: Path) -> None:
    file = tmp_path / "pillion.log"
    options = ["--log-file-size", "1", "--log-file-frequency", "daily", "--log-file-keep", "1"]
    output = start_logging(parsed("--log-file", str(file), "--log-level", "INFO", *options))
    for name in ("second", "third", "fourth"):
        for _ in range(67):
            logging.getLogger("pillion.test").error(name, extra={"padding": name[0] * 15_000})
    output.close()
    rolled = [one for one in tmp_path.iterdir() if one != file]
    assert "fourth" in file.read_text()
    assert ["third" in one.read_text() for one in rolled] == [True]


def test_without_a_file_the_log_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    output = start_logging(parsed("--log-format", "logfmt"))
    logging.getLogger("pillion.test").info("hello")
    output.close()
    assert "message=hello" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--log-file-size", "1"),
        ("--log-file-frequency", "hourly"),
        ("--log-file-keep", "1"),
    ],
)
def test_what_does_not_go_to_a_file_does_not_roll(option: str, value: str) -> None:
    with pytest.raises(CommandError, match=f"^{option}: only with --log-file FILE") as failure:
        start_logging(parsed(option, value))
    assert failure.value.code is Exit.USAGE


def test_a_number_of_files_needs_a_reason_to_roll(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="--log-file-size") as failure:
        start_logging(parsed("--log-file", str(tmp_path / "log"), "--log-file-keep", "1"))
    assert failure.value.code is Exit.USAGE


def test_a_file_that_cannot_be_opened_is_named_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "none" / "log"
    with pytest.raises(CommandError, match=f"{file}: No such file or directory"):
        start_logging(parsed("--log-file", str(file)))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--log-file-size", "0"),
        ("--log-file-size", "1.5"),
        ("--log-file-keep", "0"),
        ("--log-file-keep", "1000001"),
        ("--log-file-frequency", "weekly"),
    ],
)
def test_a_bad_value_is_refused(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed(option, value)
    assert value in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        (
            "sidecar",
            ["--intake", "127.0.0.1:8300", "--telemetry", "127.0.0.1:8300"],
            "--intake 127.0.0.1:8300 and --telemetry 127.0.0.1:8300",
        ),
        (
            "sidecar",
            ["--administration", "127.0.0.1:8289"],
            "--telemetry 127.0.0.1:8289 and --administration 127.0.0.1:8289",
        ),
        (
            "sidecar",
            ["--intake", "[::]:8289", "--telemetry", "[::1]:8289"],
            "--intake [::]:8289 and --telemetry [::1]:8289",
        ),
        (
            "operator",
            ["--webhook", "0.0.0.0:8081", "--telemetry", "10.0.0.1:8081"],
            "--telemetry 10.0.0.1:8081 and --webhook 0.0.0.0:8081",
        ),
    ],
)
def test_two_listeners_of_one_address_are_both_named(
    name: str, options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    required = {"sidecar": ["--resources", "/nowhere"], "operator": ["--deliverer-image", "image"]}
    assert main([name, *required[name], *options]) == Exit.USAGE
    assert capsys.readouterr().err == (
        f"pillion {name}: {told} cannot share a port; choose another port for one of them\n"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Address("127.0.0.1", 0), Address("127.0.0.1", 0)),
        (Address("127.0.0.1", 1), Address("127.0.0.1", 2)),
        (Address("127.0.0.1", 1), Address("127.0.0.2", 1)),
        (Address("127.0.0.1", 1), Address("::", 1)),
        (Address("0.0.0.0", 1), Address("elsewhere", 1)),
        (Address("127.0.0.1", 1), None),
    ],
)
def test_listeners_of_different_addresses_are_not_refused(
    one: Address, other: Address | None
) -> None:
    check_listeners({"--intake": one, "--telemetry": other})


@pytest.mark.parametrize("journal", ["resources", "resources/../resources", "link"])
def test_a_journal_in_the_folder_of_the_resources_is_refused(tmp_path: Path, journal: str) -> None:
    (tmp_path / "resources").mkdir()
    (tmp_path / "link").symlink_to("resources")
    parser = argparse.ArgumentParser()
    sidecar.add_arguments(parser)
    folders = ["--resources", str(tmp_path / "resources"), "--journal", str(tmp_path / journal)]
    with pytest.raises(CommandError, match="is the folder of --resources") as failure:
        sidecar.run(parser.parse_args(folders))
    assert failure.value.code == Exit.USAGE


def test_files_in_the_folder_of_the_journal_are_refused(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    sidecar.add_arguments(parser)
    given = ["--resources", str(tmp_path / "resources")]
    for option in ("--journal", "--delivery-folder"):
        given += [option, str(tmp_path / "journal")]
    with pytest.raises(CommandError, match="is the folder of --journal") as failure:
        sidecar.run(parser.parse_args(given))
    assert failure.value.code == Exit.USAGE


def test_a_folder_of_files_that_is_not_there_is_refused(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    sidecar.add_arguments(parser)
    given = ["--resources", str(tmp_path), "--delivery-folder", str(tmp_path / "none")]
    with pytest.raises(CommandError, match=r"--delivery-folder .*/none: no such folder") as failure:
        sidecar.run(parser.parse_args(given))
    assert failure.value.code == Exit.USAGE


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--journal", ""),
        ("--resources", ""),
        ("--log-file", ""),
        ("--nameserver", "name"),
        ("--nameserver", "192.0.2.1:0"),
        ("--nameserver", "192.0.2.1:65536"),
        ("--intake", "127.0.0.1:\u0663"),
        ("--intake", "::1:80"),
        ("--intake", "http://127.0.0.1:0"),
        ("--max-destinations", "0"),
        ("--max-destinations", "-1"),
        ("--max-destinations", "1" + 30 * "0"),
    ],
)
def test_a_wrong_value_of_the_sidecar_is_refused_by_name(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    sidecar.add_arguments(parser)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--resources", "x", option, value])
    assert ended.value.code == Exit.USAGE
    assert option in capsys.readouterr().err


@pytest.mark.parametrize("text", ["192.0.2.1", "192.0.2.1:53", "2001:db8::1", "[2001:db8::1]:53"])
def test_a_name_server_is_an_address_with_or_without_a_port(text: str) -> None:
    assert sidecar.name_server(text) == text


@pytest.mark.parametrize("text", ["\xf6\u20ac", "a\r\nb"])
def test_a_publisher_that_no_header_carries_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        publish.publisher_id(text)
