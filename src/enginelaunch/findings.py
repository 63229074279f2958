"""What a check has to say: findings, a report of them, and the error that carries a report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

Severity = Literal["error", "warning", "info"]
"""`error`: it will not work. `warning`: it may not, or not as meant. `info`: worth knowing."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a check found.

    Attributes:
        severity: error, warning or info.
        code: a stable name for this kind of finding, in words joined by dashes.
        message: what is the case: the field, the value, what is allowed.
        hint: what to do about it; may be empty.
        where: the part of the input that it is about, such as `profile.args` or `nodes[1].address`.

    Example:
        >>> print(Finding(severity="error", code="bad-value", message="0 is too small",
        ...               hint="give 1 or more", where="profile.tensor_parallel_size"))
        error: profile.tensor_parallel_size: 0 is too small (give 1 or more) [bad-value]
    """

    severity: Severity
    code: str
    message: str
    hint: str = ""
    where: str = ""

    def __str__(self) -> str:
        """One line for a terminal or a log."""
        where = f"{self.where}: " if self.where else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.severity}: {where}{self.message}{hint} [{self.code}]"

    def as_dict(self) -> dict[str, str]:
        """The finding as JSON data."""
        return {
            "severity": self.severity,
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "where": self.where,
        }


class Report(msgspec.Struct, frozen=True):
    """All that a check found, in the order in which it looked.

    Attributes:
        findings: the findings.

    Example:
        >>> Report().ok
        True
    """

    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> Report:
        """A report of these findings, each said once."""
        return cls(tuple(dict.fromkeys(findings)))

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are errors."""
        return tuple(f for f in self.findings if f.severity == "error")

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return not self.errors

    def raise_for_errors(self) -> None:
        """Do nothing when the report is ok.

        Raises:
            LaunchError: the report has errors; all of its findings go with it.
        """
        if not self.ok:
            raise LaunchError(self)

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON data."""
        return {"findings": [f.as_dict() for f in self.findings]}


class LaunchError(ValueError):
    """Something cannot be launched as it is described.

    Attributes:
        report: everything that was found, warnings included.

    Example:
        >>> finding = Finding(severity="error", code="no-nodes", message="there are no nodes")
        >>> print(LaunchError(Report((finding,))))
        error: there are no nodes [no-nodes]
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__("\n".join(str(f) for f in report.errors))

    def __reduce__(self) -> tuple[type[LaunchError], tuple[Report]]:
        """Pickle by building anew; an exception's own way would pass on the text alone."""
        return type(self), (self.report,)

    @classmethod
    def of(cls, code: str, message: str, *, hint: str = "", where: str = "") -> LaunchError:
        """An error with one finding."""
        return cls(Report((Finding(severity="error", code=code, message=message, hint=hint, where=where),)))
