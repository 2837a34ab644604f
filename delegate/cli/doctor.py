"""`delegate doctor`: what is set up here, what isn't, and what to do about it."""

from typing import Annotated

import typer

from delegate.cli.options import Format, FormatOption

SecurityOption = Annotated[
    bool,
    typer.Option("--security", help="Try attacks on this machine's confinement, harmlessly, and show how they end."),
]


def doctor(security: SecurityOption = False, format: FormatOption = Format.pretty) -> None:
    """Look at keys, model servers, sandbox, versions and folders, and say what to do about each problem.

    Keys are never printed. Exits with 0 when children have a model that answers, else with 1.
    """
    from delegate.cli.diagnostics import examine

    if security:
        from delegate.cli.security.report import report_security

        report_security(format)
        raise typer.Exit(0)
    from delegate.cli.output import console, print_json, print_jsonl
    from delegate.cli.work import work
    from delegate.delegator import Delegator

    delegator = Delegator()
    checkup = work(delegator, lambda _: examine(delegator))
    if format is Format.pretty:
        console().print(checkup.text(), soft_wrap=True)
    elif format is Format.json:
        print_json(checkup.document())
    else:
        print_jsonl(checkup.document()["checks"])
    raise typer.Exit(0 if checkup.can_call else 1)
