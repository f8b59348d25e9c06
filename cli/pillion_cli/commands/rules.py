"""``pillion rules``: check, test and explain rules, which turn readings into alerts."""

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from pillion_cli.arguments import Options, add_output_argument
from pillion_cli.exits import CommandError, Exit
from pillion_rules.cases import Case, Difference, differences_of, load_cases, run_case
from pillion_rules.errors import RuleError
from pillion_rules.explain import explain
from pillion_rules.rule import Rule, schema
from pillion_rules.unless import unless_problems
from pillion_sidecar.config.problems import escape_controls

HELP = """
Check, test and explain rules: YAML that says when readings raise, change, repeat and clear an
alert. RULES is a file, or a quoted pattern such as 'rules/*.yaml'; it has all the rules that others
name in unless.

test runs the cases of the file CASES, and names every difference between the expected and the real
transitions. The conditions of cases that give columns are evaluated by Spark, which is started once
in this process: it needs pyspark and Java. Cases that give levels need no Spark. With --levels no
condition is evaluated, and a reading without a level has none.

explain checks the rules, and says in plain sentences what each one does. schema prints the JSON
schema of files of rules, for an editor.

examples:
  pillion rules explain 'rules/*.yaml'
  pillion rules test rules/weather.yaml rules/weather-cases.yaml
  pillion rules schema > rules.schema.json

exit codes: 0 done, 1 a rule or a case is wrong, or a case has failed, 2 a wrong command line.
"""

#: Maximum problems that are printed.
MOST_PROBLEMS = 100
ACTIONS = {"test": ("RULES", "CASES"), "explain": ("RULES",), "schema": ()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "pillion rules ACTION [RULES [CASES]] [options]"
    parser.add_argument("action", choices=list(ACTIONS), help="action")
    parser.add_argument("rules", metavar="RULES", nargs="?", help="file or pattern of rules")
    parser.add_argument("cases", metavar="CASES", nargs="?", help="file of cases, for test")
    Options(parser).flag("--levels", "test the levels of readings alone, without Spark")
    add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    _check(args)
    if args.action == "schema":
        print(json.dumps(schema(), indent=2))
        return Exit.OK
    try:
        rules = Rule.load(args.rules)
        if problems := [*unless_problems(rules)]:
            raise RuleError(problems)
        if args.action == "explain":
            return _explain(rules, as_json=args.output == "json")
        cases = load_cases(args.cases, rules)
    except RuleError as error:
        raise CommandError(*_lines(error.problems)) from None
    results = [*_results(cases, by_levels=args.levels)]
    return _show(results, as_json=args.output == "json")


def _check(args: argparse.Namespace) -> None:
    needed = ACTIONS[args.action]
    for name, value in (("RULES", args.rules), ("CASES", args.cases)):
        if (value is not None) is not (name in needed):
            text = "is missing" if value is None else f"not for {args.action}"
            raise CommandError(f"{name}: {text}", code=Exit.USAGE)
    if args.levels and args.action != "test":
        raise CommandError(f"--levels: not for {args.action}", code=Exit.USAGE)


def _lines(problems: Sequence[str]) -> Iterator[str]:
    yield from problems[:MOST_PROBLEMS]
    if len(problems) > MOST_PROBLEMS:
        yield f"{len(problems) - MOST_PROBLEMS:,} problems more; correct these first"


def _explain(rules: Sequence[Rule], *, as_json: bool) -> int:
    if as_json:
        print(json.dumps({rule.name: explain(rule) for rule in rules}, indent=2))
        return Exit.OK
    for number, rule in enumerate(rules):
        print(f"{'' if number == 0 else chr(10)}{escape_controls(rule.name)}")
        for sentence in explain(rule):
            print(f"  {escape_controls(sentence)}")
    return Exit.OK


_Result: TypeAlias = tuple[Case, list[Difference]]


def _results(cases: Sequence[Case], *, by_levels: bool) -> Iterator[_Result]:
    if by_levels or all(case.has_levels for case in cases):
        yield from ((case, run_case(case)) for case in cases)
        return
    try:
        # Few who run this command have Spark.
        from pyspark_pillion import ConfigurationError, case_runs
    except ImportError:
        raise CommandError(
            "cases with columns need pyspark: pip install 'pillion[spark-rules]', or give levels"
        ) from None
    try:
        session = case_runs.start()
    except ConfigurationError as error:
        raise CommandError(f"cases with columns need Spark: {error.problems[0]}") from None
    try:
        for case in cases:
            try:
                found = None if case.has_levels else case_runs.run(session, case)
            except RuleError as error:
                yield case, [Difference("refused", one) for one in error.problems]
            else:
                yield case, run_case(case) if found is None else differences_of(case, *found)
    finally:
        session.stop()


def _show(results: Sequence[_Result], *, as_json: bool) -> int:
    failed = sum(bool(differences) for _, differences in results)
    if as_json:
        print(
            json.dumps({"failed": failed, "cases": [_document(*one) for one in results]}, indent=2)
        )
        return Exit.FAILED if failed else Exit.OK
    for case, differences in results:
        print(f"{'FAIL' if differences else 'ok  '}  {escape_controls(case.name)}")
        for one in differences:
            print(f"      {one.kind:<10}  {escape_controls(one.text)}")
    counted = "1 case" if len(results) == 1 else f"{len(results):,} cases"
    print(f"{counted}, {failed:,} failed")
    return Exit.FAILED if failed else Exit.OK


def _document(case: Case, differences: Sequence[Difference]) -> dict[str, object]:
    found = [{"kind": one.kind, "text": one.text} for one in differences]
    return {"name": case.name, "rule": case.rule.name, "differences": found}
