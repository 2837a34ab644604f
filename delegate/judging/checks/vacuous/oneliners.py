"""Whether a program given as text (`python -c …`, `node -e …`) can fail at all."""

import ast
import re
import sys
import warnings

MAX_CHARS = 4_000

_PRINTS = frozenset({"print", "str", "len", "repr", "int", "sys.stdout.write", "sys.stderr.write"})
_LEAVES = frozenset({"exit", "quit", "sys.exit", "os._exit", "SystemExit"})
_PLAIN = re.compile(
    r"""|(?:process\.)?exit(?:\(0?\)|\s+0)?|(?:console\.log|print|puts|echo|say)[ (](?:"[^"$]*"|'[^']*')\)?|true|[01]"""
)
"""JavaScript, Perl, Ruby and PHP statements that leave with 0, print a constant, or do nothing."""

_HARMLESS = (
    ast.Module, ast.Expr, ast.Constant, ast.Pass, ast.Load, ast.Store, ast.Name, ast.Assign, ast.Attribute,
    ast.JoinedStr, ast.FormattedValue, ast.alias, ast.keyword, ast.Tuple, ast.List,
)  # fmt: skip


def python_can_fail(code: str) -> bool:
    """Whether the work can make this Python program fail. Unreadable code is taken to be able to."""
    if len(code) > MAX_CHARS:
        return True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(code).body
        return any(_can_fail(statement) for statement in _reached(body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True


def other_can_fail(code: str) -> bool:
    """The same for JavaScript, Perl, Ruby and PHP: only the plainest programs are known to be unable."""
    return any(_PLAIN.fullmatch(statement.strip()) is None for statement in re.split("[;\n]", code))


def _reached(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements up to the first that surely leaves with 0."""
    for place, statement in enumerate(body):
        if isinstance(statement, ast.Expr | ast.Raise) and _leaves_with_zero(statement):
            return body[:place]
    return body


def _leaves_with_zero(statement: ast.Expr | ast.Raise) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else statement.exc
    if not isinstance(call, ast.Call) or ast.unparse(call.func) not in _LEAVES:
        return False
    return not call.args or (isinstance(call.args[0], ast.Constant) and call.args[0].value in (0, None, False))


def _can_fail(node: ast.AST) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return not _standard(node)
    if isinstance(node, ast.Assert):
        return not _plainly_true(node.test)
    if isinstance(node, ast.Try) and any(_catches_all(handler) for handler in node.handlers):
        return any(_can_fail(child) for handler in node.handlers for child in _reached(handler.body))
    if isinstance(node, ast.Call) and ast.unparse(node.func) not in _PRINTS:
        return not _leaves_with_zero(ast.Expr(node))
    if not isinstance(node, (*_HARMLESS, ast.Call)):
        return True
    return any(_can_fail(child) for child in ast.iter_child_nodes(node))


def _standard(node: ast.Import | ast.ImportFrom) -> bool:
    names = [node.module or "."] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    return all(name.partition(".")[0] in sys.stdlib_module_names for name in names)


def _plainly_true(test: ast.expr) -> bool:
    if isinstance(test, ast.Constant):
        return bool(test.value)
    return (
        isinstance(test, ast.Compare)
        and ast.unparse(test.left) == ast.unparse(test.comparators[0])
        and (len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq | ast.Is | ast.LtE | ast.GtE))
    )


def _catches_all(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or ast.unparse(handler.type) in ("BaseException", "Exception")
