"""Findings, reports, and the error that carries one."""

from __future__ import annotations

import copy
import pickle
from typing import Literal

import pytest

from enginelaunch.findings import Finding, LaunchError, Report


def finding(severity: Literal["error", "warning", "info"], code: str = "code", **more: str) -> Finding:
    return Finding(severity=severity, code=code, message="it is so", **more)


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({}, "error: it is so [code]"),
        ({"where": "profile.args[1]"}, "error: profile.args[1]: it is so [code]"),
        ({"hint": "do this"}, "error: it is so (do this) [code]"),
        ({"where": "version", "hint": "do this"}, "error: version: it is so (do this) [code]"),
    ],
)
def test_a_finding_is_one_line(more: dict[str, str], line: str) -> None:
    assert str(finding("error", **more)) == line


def test_a_finding_as_json_data() -> None:
    assert finding("warning", hint="h", where="w").as_dict() == {
        "severity": "warning",
        "code": "code",
        "message": "it is so",
        "hint": "h",
        "where": "w",
    }


def test_a_report_says_each_finding_once_in_order() -> None:
    one, two = finding("info", "one"), finding("error", "two")
    assert Report.of([two, one, two, finding("info", "one")]).findings == (two, one)


@pytest.mark.parametrize(
    ("severities", "ok"),
    [((), True), (("info", "warning"), True), (("warning", "error"), False)],
)
def test_only_errors_make_a_report_not_ok(
    severities: tuple[Literal["error", "warning", "info"], ...], ok: bool
) -> None:
    report = Report.of(finding(severity) for severity in severities)
    assert report.ok is ok
    assert report.errors == tuple(f for f in report.findings if f.severity == "error")


def test_a_report_that_is_ok_raises_nothing() -> None:
    report = Report((finding("warning"),))
    report.raise_for_errors()
    assert report.as_dict() == {"findings": [finding("warning").as_dict()]}


def test_a_report_with_errors_raises_them_and_carries_the_rest() -> None:
    report = Report((finding("warning"), finding("error", "one"), finding("error", "two")))
    with pytest.raises(LaunchError) as raised:
        report.raise_for_errors()
    assert str(raised.value) == "error: it is so [one]\nerror: it is so [two]"
    assert raised.value.report is report


def test_an_error_of_one_finding() -> None:
    error = LaunchError.of("no-nodes", "there are none", hint="add one", where="nodes")
    assert error.report.findings == (
        Finding(severity="error", code="no-nodes", message="there are none", hint="add one", where="nodes"),
    )
    assert str(error) == "error: nodes: there are none (add one) [no-nodes]"


def test_an_error_is_pickled_and_copied_with_its_report() -> None:
    # Process pools hand errors over as pickles.
    error = LaunchError(Report((finding("warning"), finding("error"))))
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert (type(again), str(again), again.report) == (LaunchError, str(error), error.report)


def test_findings_and_reports_are_hashed_and_pickled() -> None:
    report = Report((finding("error"),))
    assert pickle.loads(pickle.dumps(report)) == report
    assert hash(pickle.loads(pickle.dumps(report))) == hash(report)


def test_a_report_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Report().findings = ()  # type: ignore[misc]
