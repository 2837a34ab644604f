"""Executes a command on every state that the shell may be in, without running any program.

Each construct takes a state and gives those in which it may have ended; a check that may fail ends in two. Equal states
are one, so what follows a branch is executed once. On the way it notes where a failure went in and can't come out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from delegate.judging.checks.vacuous import programs, syntax
from delegate.judging.checks.vacuous.conditions import Operand, decide
from delegate.judging.checks.vacuous.programs import Argv, Input, program
from delegate.judging.checks.vacuous.state import (
    CHECKS,
    FAILED,
    SETUP,
    TESTS_FAILED,
    UNRELATED,
    WORK,
    ZERO,
    Body,
    Codes,
    Shell,
    State,
    States,
    codes,
    either,
    harmless,
    put,
    running,
)
from delegate.judging.checks.vacuous.syntax import Pipeline, Script, Span, Stage, Unreadable, statements

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_STEPS = 4_000
MAX_DEPTH = 60
MAX_CALL_DEPTH = 30
MAX_STATES = 16
"""With more, what is known about variables and files is forgotten, which makes most of them equal."""
MAX_ROUNDS = 3
"""How often a loop's body is executed, each time in the states that the round before has left."""

_LOOPS = frozenset({"while_statement", "for_statement", "c_style_for_statement"})
_CLAUSES = frozenset({"elif_clause", "else_clause"})
_COMMANDS = frozenset({"command", "declaration_command", "unset_command", "variable_assignment"})
_CAN_FAIL = _COMMANDS | {"test_command", "subshell"}
_VARIABLE = re.compile(r'("?)\$(\{)?(\w+|\?)(?(2)\})\1')
_DECLARES = frozenset({"export", "declare", "typeset", "readonly", "local"})
_SETS_VARIABLES = frozenset({"read", "mapfile", "readarray", "let", "getopts", "unset", "printf", "local"})
_SHELLS = frozenset({"bash", "sh", "dash", "zsh", "ksh", "ash"})
_SHELL_OPTION = re.compile(r"[-+]\w*o |\S* [-+]")
_RESERVED = frozenset({
    "!", "{", "}", "if", "then", "else", "elif", "fi", "do", "done", "while", "until", "for", "case", "esac", "select",
    "function", "in", "[[", "((",
})  # fmt: skip
_QUOTED = frozenset({"string", "raw_string", "ansi_c_string"})
_COUNTS = re.compile(r"(IFS=\S* *)?(read|mapfile)\b|(test|\[+|\(\()\s.*?(\s-(lt|le|gt|ge|ne)\s|[<>])", re.DOTALL)


class Note(NamedTuple):
    """A failure is lost here. `alone`: worth telling even where something else in the command can still fail."""

    rule: str
    span: Span
    alone: bool = False


class Around(NamedTuple):
    """What stands around a piece of shell."""

    input: Input = Input()
    captured: bool = False
    """The output goes to a file or to another command, which may look at it."""
    checked: bool = False
    """Something looks at the exit code, so `set -e` doesn't act on it."""
    in_function: bool = False


Construct = Callable[["Node", State, Around], States]
Builtin = Callable[[Argv, Sequence["Node"], State, Around], States]


class Interpreter:
    """One walk through a command. Where `misread` is set, the tree is known to be wrong and nothing is proven."""

    def __init__(self, script: Script) -> None:
        self.misread = False
        self._notes: dict[tuple[str, Span], bool] = {}
        self._kept: set[tuple[str, Span]] = set()
        self._script = script
        self._uses_pipestatus = "PIPESTATUS" in script.text
        self._sources_files = False
        self._steps = self._depth = self._status_reads = 0
        self._parsed: dict[tuple[str, int, Span | None], Script] = {}
        self._constructs: Mapping[str, Construct] = {
            **dict.fromkeys(("program", "do_group"), self._block),
            **dict.fromkeys((*_COMMANDS, "variable_assignments"), self._command),
            **dict.fromkeys(("list", "pipeline", "negated_command", "redirected_statement"), self._joined),
            **dict.fromkeys(("file_redirect", "heredoc_redirect", "herestring_redirect"), self._nothing),
            **dict.fromkeys(("for_statement", "c_style_for_statement"), self._for),
            "subshell": self._subshell, "compound_statement": self._compound, "test_command": self._test,
            "function_definition": self._function, "if_statement": self._if, "case_statement": self._case,
            "while_statement": self._while,
        }  # fmt: skip
        self._builtins: Mapping[str | None, Builtin] = {
            **dict.fromkeys(("exit", "return", "break", "continue"), self._exit),
            **dict.fromkeys(("source", "."), self._source),
            "set": self._set, "trap": self._trap, "eval": self._eval, "test": self._test_builtin,
        }  # fmt: skip

    def codes(self) -> Codes:
        """The exit codes with which the whole command may leave."""
        return codes(self._back(self.run(self._script.root, State(), Around()), State()))

    def notes(self) -> list[Note]:
        """Where failures are lost, whatever state the shell is in."""
        return [Note(*place, alone) for place, alone in self._notes.items() if place not in self._kept]

    def run(self, node: Node, state: State, around: Around) -> States:
        """The states after a node."""
        construct = self._constructs.get(node.type)
        if construct is None:
            return {state}
        self._steps += 1
        self._depth += 1
        if self._steps > MAX_STEPS or self._depth > MAX_DEPTH:
            raise Unreadable("too long or too nested")
        ended = construct(node, state, around)
        self._depth -= 1
        return self._unchecked(ended) if node.type in _CAN_FAIL and not around.checked else ended

    def _note(self, rule: str, span: Span, around: Around, *, lost: bool = True, alone: bool = False) -> None:
        """Remember that a failure is lost here, or that it is passed on in one of the states."""
        if lost:
            self._notes[rule, span] = self._notes.get((rule, span), True) and alone and not around.captured
        else:
            self._kept.add((rule, span))

    @contextmanager
    def _reading(self, script: Script) -> Generator[None]:
        outer, self._script = self._script, script
        yield
        self._script = outer

    def _parse(self, text: str, word: Node, span: Span | None = None) -> Script:
        """Read a text that the command runs as a script. It stands in a word, or anywhere in a span."""
        place = self._script.text_of(word).find(text)
        within = span or self._script.within or (None if place >= 0 else self._script.span(word))
        key = text, self._script.offset + word.start_byte + place, within
        if key not in self._parsed:
            self._parsed[key] = script = syntax.parse(*key)
            if sum(len(text) for text, *_ in self._parsed) > syntax.MAX_CHARS or script.root.has_error:
                raise Unreadable("not shell, or too long")
        return self._parsed[key]

    def _back(self, ended: States, state: State) -> States:
        """The states of the waiting shell, which is in `state`, after a subshell that ended so."""
        return {
            state.ended(last.code).but(files=last.shell.files)
            for inner in ended
            for last in self._trapped(inner.shell.on_exit, inner)
        }

    def _trapped(self, trap: Body | None, state: State) -> States:
        """Run a trap's handler. The exit code stays, unless the handler calls `exit`."""
        if not trap:
            return {state}
        with self._reading(trap.script):
            ended = self.run(trap.node, state.subshell(), Around())
        traps = {"on_exit": state.shell.on_exit, "on_error": state.shell.on_error}
        after = {(new if new.jump else State(state.code, state.jump, new.shell)).but(**traps) for new in ended}
        if state.code in WORK:
            self._note("trap_exit", trap.span, Around(), lost=harmless(codes(after)), alone=True)
        return after

    def _unchecked(self, ended: States) -> States:
        """What `trap … ERR` and `set -e` do about failures that nothing looks at."""
        failing = {state for state in running(ended) if state.code}
        trapped = {state for state in failing if state.shell.on_error}
        after = {new for state in _as_work(trapped) for new in self._trapped(state.shell.on_error, state)}
        after |= failing - trapped
        return (ended - failing) | {s._replace(jump="exit") if s.shell.errexit and not s.jump else s for s in after}

    # ------------------------------------------------------------------------------------- lists and pipelines

    def _block(self, node: Node, state: State, around: Around) -> States:
        return self._sequence(node.children, state, around)

    def _sequence(self, children: Sequence[Node], state: State, around: Around) -> States:
        states, out, ended = {state}, States(), States()
        before: Node | None = None
        dropped: list[tuple[Node, bool]] = []
        lost = False
        for child, ampersand in statements(children):
            status, reads = codes(states) if before else Codes(), self._status_reads
            ended = {new for old in states for new in self._statement(child, ampersand, old, around)}
            if len(ended) > MAX_STATES:
                ended = {new.but(variables=(), files=()) for new in ended}
            lost |= bool(status & WORK)
            if before and status & CHECKS and self._status_reads == reads:
                dropped.append((before, TESTS_FAILED in status))
            before, states = child, running(ended)
            out |= ended - states
            if not states:
                break
        everything = harmless(codes(ended))
        if before and lost:
            alone = any(tests for _, tests in dropped)
            self._note("last_always", self._script.span(before), around, lost=everything, alone=alone)
        for child, _ in dropped:
            self._note("dropped_check", self._script.span(child), around, lost=not everything, alone=True)
        return out | states

    def _statement(self, node: Node, ampersand: Node | None, state: State, around: Around) -> States:
        if not ampersand:
            return self.run(node, state, around)
        ended = self._back(self.run(node, state.subshell(), Around(captured=around.captured)), state)
        if WORK & codes(ended):
            self._note("background", self._script.span(node, ampersand), around)
        return {new.ended(0) for new in ended}

    def _joined(self, node: Node, state: State, around: Around) -> States:
        """What `&&` and `||` join."""
        parts, checked = syntax.pipelines(node), around._replace(checked=True)
        ended, seen = {state}, Codes()
        for part in parts:
            taken = {new for new in running(ended) if not part.operator or (not new.code) == (part.operator == "&&")}
            inner = around if part is parts[-1] else checked
            branch = {new for old in taken for new in _after(old, self._pipeline(part, old, inner))}
            kept, ends = ended - taken, codes(branch)
            if part.operator == "||" and codes(taken) & WORK:
                recorded = not {new.shell for new in branch} <= {old.shell for old in taken}
                alone = TESTS_FAILED in seen and not recorded
                self._note("or_always", self._script.span(*part.ends), around, lost=harmless(ends), alone=alone)
            elif part.operator == "&&" and not (CHECKS & ends and ends <= SETUP | CHECKS):
                kept = _as_work(kept)  # `[ -f x ] && rm x` isn't there for its exit code
            seen |= ends
            ended = kept | branch
        return ended

    def _pipeline(self, part: Pipeline, state: State, around: Around) -> States:
        inner = around._replace(checked=True) if part.negated else around
        if len(part.stages) == 1:
            ended = self._stage(part.stages[0], state, inner)
        else:
            ended = self._piped(part, state, inner)
            ended = ended if inner.checked else self._unchecked(ended)
        if not part.negated:
            return ended
        failed = max(codes(ended) & WORK, default=1)
        return {new if new.jump else new.ended(0 if new.code else failed) for new in ended}

    def _piped(self, part: Pipeline, state: State, around: Around) -> States:
        first, *later = part.stages
        inner = around._replace(captured=True)
        states = ended = self._back(self._stage(first, state.subshell(), inner), state)
        earlier, ends, known = Codes(), codes(ended), self._prints_known(first)
        for stage in later:
            inner = Around(Input(True, known), around.captured or stage is not later[-1], around.checked)
            after = {old: self._back(self._stage(stage, old.subshell(), inner), old) for old in running(states)}
            earlier, ends = earlier | ends, Codes().union(*map(codes, after.values()))
            known = known and ends <= SETUP
            ended = {
                new.ended(old.code) if old.shell.pipefail and not new.code else new
                for old, news in after.items()
                for new in news
            }
            states = ended | (states - running(states))
        if earlier & WORK and not state.shell.pipefail:
            looks = self._program_of(later[-1]) in programs.SEARCHES or harmless(ends)
            kept = self._uses_pipestatus or any(stage.redirects or self._program_of(stage) == "tee" for stage in later)
            alone = TESTS_FAILED in earlier and looks and not kept
            self._note("pipe_drops_status", self._script.span(*part.ends), around, alone=alone)
        return states

    def _program_of(self, stage: Stage) -> str:
        """The program of a stage that is a simple command."""
        words = syntax.command_parts(stage.node)[0] if stage.node.type == "command" else []
        return program(self._script.argv(words[:1]))

    def _stage(self, stage: Stage, state: State, around: Around, run: Construct | None = None) -> States:
        node, run = stage.node, run or self.run
        if not stage.redirects:
            return run(node, state, around)
        found = self._script.redirections(stage.redirects)
        writes = found.target != "/dev/null"
        given = Input(True, text=found.text) if found.reads else around.input
        ended = run(node, state, around._replace(input=given, captured=around.captured or writes))
        if writes:
            known = self._prints_known(stage)
            ended = {new.but(files=put(new.shell.files, found.target, known)) for new in ended}
            ended = _as_work(ended)  # what reads the file may judge
        missing = not found.source.startswith("/dev/") and node.type not in _LOOPS
        return ended | {state.ended(FAILED)} if missing else ended

    def _prints_known(self, stage: Stage) -> bool:
        """Whether a command prints the same, however the work went."""
        if stage.node.type != "command":
            return False
        argv = self._script.argv(syntax.command_parts(stage.node)[0])
        if program(argv) == "cat":
            return self._script.redirections([*stage.redirects, *syntax.redirects(stage.node)]).text is not None
        return program(argv) in ("echo", "printf", ":", "true") and None not in argv

    # ------------------------------------------------------------------------------------- simple commands

    def _command(self, node: Node, state: State, around: Around) -> States:
        return self._stage(Stage(node, syntax.redirects(node)), state, around, self._simple)

    def _simple(self, node: Node, state: State, around: Around) -> States:
        words, assignments = syntax.command_parts(node)
        argv = self._script.argv(words)
        self._status_reads += "$?" in self._script.text_of(node)
        self.misread |= argv[0] in _RESERVED if argv else False
        if not words or argv[0] in _DECLARES:
            state = self._assigned(assignments, state)
        ends: Codes = ZERO
        hidden: list[Node] = []
        for word in (*words, *assignments):
            for script in syntax.substitutions(word):
                ends = codes(self._substituted(script, state))
                hidden += [word] if ends & WORK else []
                state = state.but(files=())  # it may have changed any of them
        if not words:
            return _as_work({state.ended(code) for code in ends})
        ended = self._dispatch(argv, words, state, around)
        for word in hidden:
            self._note("substitution_hides_status", self._script.span(word), around, lost=harmless(codes(ended)))
        return ended

    def _assigned(self, assignments: Iterable[Node], state: State) -> State:
        for node in assignments:
            name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
            known = None if any(child.type == "+=" for child in node.children) else self._value(value, state)
            state = state.but(variables=put(state.shell.variables, self._script.text_of(name) if name else "", known))
        return state

    def _value(self, word: Node | None, state: State) -> str | int | None:
        """What a word stands for, where that is known."""
        if word is None:
            return ""
        found = _VARIABLE.fullmatch(self._script.text_of(word)) if word.named_child_count else None
        if found is None:
            return self._script.literal(word)
        if found[3] == "?":
            return str(state.code) if state.code >= 0 else state.code
        return dict(state.shell.variables).get(found[3])

    def _substituted(self, script: Node, state: State) -> States:
        """Run a `$(…)`, in which `set -e` has no effect."""
        inner = state.subshell().but(errexit=False)
        return self._back(self._block(script, inner, Around(captured=True)), state)

    def _dispatch(self, argv: Argv, words: Sequence[Node], state: State, around: Around) -> States:
        """Run a function, a builtin, a wrapper such as `timeout`, a shell with a script, or a program."""
        name = argv[0]
        if body := dict(state.shell.functions).get(name or ""):
            if self._depth > MAX_CALL_DEPTH:
                return either(state)
            with self._reading(body.script):
                ended = self.run(body.node, state, around._replace(in_function=True))
            return {new._replace(jump="") if new.jump == "return" else new for new in ended}
        if builtin := self._builtins.get(name):
            return builtin(argv, words, state, around)
        if inner := programs.wrapped(argv):
            ended = self._dispatch(inner, words[len(words) - len(inner) :], state, around)
            return {new._replace(jump="exit") for new in ended} if name == "exec" else ended
        place = next((n for n, word in enumerate(argv) if program([word]) in _SHELLS), None)
        ended = self._own_shell(argv[place:], words[place:], state, around) if place is not None else None
        return self._program(argv, words, state, around) if ended is None else ended

    def _own_shell(self, argv: Argv, words: Sequence[Node], state: State, around: Around) -> States | None:
        """`bash -c '…'`, or `bash` with a script on its input. None for one that runs a file."""
        place = 1
        while place < len(argv) and _SHELL_OPTION.match(f"{argv[place - 1]} {argv[place]}"):
            place += 1
        options = argv[1:place]
        letters = "".join(word for word in options if word and re.match(r"-\w", word))
        if place < len(argv) and "c" not in letters:
            return None
        inline = place < len(argv)
        text = argv[place] if inline else around.input.text
        if text is None:
            return either(state)
        shell = Shell((), (), state.shell.files, "e" in letters or "errexit" in options, "pipefail" in options)
        script = self._parse(text, words[place if inline else 0], None if inline else self._script.span(words[0]))
        with self._reading(script):
            return self._back(self.run(script.root, State(shell=shell), Around()), state)

    def _program(self, argv: Argv, words: Sequence[Node], state: State, around: Around) -> States:
        name, files = program(argv), state.shell.files
        ends, rule = programs.effect(argv, around.input, dict(files))
        if rule and not (rule == "not_shell" and self._sources_files):
            where = around._replace(captured=around.captured and rule == "tool_flag")
            span = self._script.span(words[0], words[-1])
            self._note(rule, span, where, alone=rule in ("discards_work", "not_shell", "tool_flag"))
        if name in ("touch", "tee", "mkdir"):
            for word in argv[1:]:
                if word and not word.startswith("-"):
                    files = put(files, word, name != "tee" or around.input.known)
        elif not programs.reads_only(argv, ends):
            files = ()  # it may have changed any of them
        state = state.but(files=files)
        if name in _SETS_VARIABLES:
            state = _forgetting(state, argv[1:])
        return {state.ended(code) for code in ends}

    # ------------------------------------------------------------------------------------- builtins

    def _exit(self, argv: Argv, words: Sequence[Node], state: State, around: Around) -> States:
        """`exit`, `return`, and `break` and `continue`, which end with 0."""
        jump = argv[0] or ""
        if jump == "return" and not around.in_function:
            return {state.ended(2)}  # bash refuses it outside of functions and sourced files
        ends, value = {state.code}, None
        if jump in ("break", "continue"):
            ends = {0}
        elif len(words) == 1:
            self._status_reads += 1
        elif isinstance(value := self._value(words[1], state), int):
            ends = {value}
        else:
            ends = {int(value) % 256} if value and re.fullmatch(r"[0-9]{1,9}", value) else {0, FAILED}
        return {State(code, jump, state.shell) for code in ends}

    def _set(self, argv: Argv, words: Sequence[Node], state: State, around: Around) -> States:
        for option, value in zip_longest(argv[1:], argv[2:]):
            if option == "--":
                break
            if option and option[0] in "-+":
                on, name = option[0] == "-", value if option.endswith("o") else None
                if "e" in option or name == "errexit":
                    state = state.but(errexit=on)
                if name == "pipefail":
                    state = state.but(pipefail=on)
        return {state.ended(0)}

    def _trap(self, argv: Argv, words: Sequence[Node], state: State, around: Around) -> States:
        signals = {(name or "").upper().removeprefix("SIG") for name in argv[2:]}
        body: Body | None = None
        if len(argv) > 2 and argv[1] and argv[1] != "-" and signals & {"EXIT", "0", "ERR"}:
            script = self._parse(argv[1], words[1])
            body = Body(script, script.root, self._script.span(words[0], words[-1]))
        if signals & {"EXIT", "0"}:
            state = state.but(on_exit=body)
        if "ERR" in signals:
            state = state.but(on_error=body)
        return {state.ended(0)}

    def _eval(self, argv: Argv, words: Sequence[Node], state: State, around: Around) -> States:
        if None in argv:
            return either(state)
        text = " ".join(filter(None, argv[1:]))
        script = self._parse(text, words[-1], self._script.span(words[0], words[-1]) if len(words) > 2 else None)
        with self._reading(script):
            return self.run(script.root, state, around)

    def _source(self, argv: Argv, words: Sequence[Node], state: State, around: Around) -> States:
        self._sources_files = True
        return either(State(shell=Shell(errexit=state.shell.errexit, pipefail=state.shell.pipefail)))

    def _test_builtin(self, argv: Argv, words: Sequence[Node], state: State, around: Around) -> States:
        return self._decided(words[1:], state)

    def _test(self, node: Node, state: State, around: Around) -> States:
        self._status_reads += "$?" in self._script.text_of(node)
        return self._decided(list(_operands(node)), state)

    def _decided(self, words: Sequence[Node], state: State) -> States:
        for script in (script for word in words for script in syntax.substitutions(word)):
            self._substituted(script, state)  # for what is noted in it
        operands = [
            Operand(self._script.text_of(word), self._value(word, state), word.type not in _QUOTED) for word in words
        ]
        files = dict(state.shell.files)
        ended = {state.ended(code) for code in decide(operands, files)}
        path = operands[1].value if len(operands) == 2 and operands[0].text in ("-e", "-f", "-s", "-r") else None
        if isinstance(path, str):
            there = put(state.shell.files, path, files.get(path, False))
            ended = {new if new.code else new.but(files=there) for new in ended}
        return ended

    # ------------------------------------------------------------------------------------- compound commands

    def _compound(self, node: Node, state: State, around: Around) -> States:
        """`{ … }` or `(( … ))`"""
        if node.children[0].type != "((":
            return self._block(node, state, around)
        text = self._script.text_of(node)
        self._status_reads += "$?" in text
        if text.count("(") > MAX_DEPTH:
            raise Unreadable("too nested")
        number = re.fullmatch(r"\(\( *([0-9]+) *\)\)", text)
        if number:
            ended = {state.ended(0 if int(number[1]) else 1)}
        else:
            ended = either(_forgetting(state, re.findall(r"\w+", text)))
        return ended if around.checked else self._unchecked(ended)

    def _subshell(self, node: Node, state: State, around: Around) -> States:
        return self._back(self._block(node, state.subshell(), around), state)

    def _nothing(self, node: Node, state: State, around: Around) -> States:
        return {state.ended(0)}

    def _function(self, node: Node, state: State, around: Around) -> States:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if not name or not body:
            return {state}
        found = Body(self._script, body, self._script.span(node))
        return {state.but(functions=put(state.shell.functions, self._script.text_of(name), found)).ended(0)}

    def _if(self, node: Node, state: State, around: Around) -> States:
        waiting, out, fails = {state}, States(), False
        for clause in (node, *(child for child in node.children if child.type in _CLAUSES)):
            children = [child for child in clause.children if child.type not in _CLAUSES]
            then = next((place for place, child in enumerate(children) if child.type == "then"), 0)
            taken, waiting = waiting, States()
            if clause.type != "else_clause":
                checked = around._replace(checked=True)
                tested = {new for old in taken for new in self._sequence(children[:then], old, checked)}
                taken = {new for new in running(tested) if not new.code}
                waiting = running(tested) - taken
                out |= tested - running(tested)
                fails |= bool(codes(waiting) & WORK)
            out |= {new for old in taken for new in _after(old, self._sequence(children[then:], old, around))}
        out |= {old.ended(0) for old in waiting}
        if fails:
            self._note("branch_hides_failure", self._script.span(node), around, lost=harmless(codes(out)))
        return out

    def _case(self, node: Node, state: State, around: Around) -> States:
        subject, out, total = node.child_by_field_name("value"), States(), False
        self._status_reads += subject is not None and "$?" in self._script.text_of(subject)
        states = {state}
        for script in syntax.substitutions(subject) if subject else ():
            states = {new for old in states for new in self._substituted(script, old)}
        for item in node.children:
            if item.type == "case_item":
                total |= any(self._script.text_of(value) == "*" for value in item.children_by_field_name("value"))
                body = item.children[[child.type for child in item.children].index(")") :]
                entered = states if any(statements(body)) else {old.ended(0) for old in states}
                out |= {new for old in entered for new in self._sequence(body, old, around)}
        out |= States() if total else {old.ended(0) for old in states}
        self._note("branch_hides_failure", self._script.span(node), around, lost=harmless(codes(out)))
        return out

    def _for(self, node: Node, state: State, around: Around) -> States:
        variable, values = node.child_by_field_name("variable"), node.children_by_field_name("value")
        words = self._script.argv(values)
        state = _forgetting(state, [self._script.text_of(variable) if variable else None])
        once = len(words) == 1 and not any(mark in (words[0] or "*") for mark in "*?[{")
        skipped = States() if words and None not in words else {state.ended(0)}
        return skipped | self._last_round(node, {state}, around, once=once)

    def _while(self, node: Node, state: State, around: Around) -> States:
        condition = [child for child in node.children if child.type != "do_group"]
        tested = self._sequence(condition, state, around._replace(checked=True))
        out, tested = tested - running(tested), running(tested)
        text = self._script.text_of(condition[1])
        if _COUNTS.match(text) and "$(" not in text:  # it comes to its end whatever the work does
            return out | {new.ended(0) for new in tested} | self._last_round(node, tested, around)
        stops = {new for new in tested if (not new.code) == (node.children[0].type == "until")}
        rounds = self._rounds(node, tested - stops, around)
        if stops:
            out |= {new.ended(0) for new in stops} | running(rounds)
        return out | _left(rounds) | {State(FAILED, "exit", new.shell) for new in running(rounds)}  # at the timeout

    def _rounds(self, node: Node, states: States, around: Around) -> States:
        """The states in which any round of a loop may end."""
        body, out = node.child_by_field_name("body") or node, States()
        for _ in range(MAX_ROUNDS):
            ended = {new for old in states for new in self._sequence(body.children, old, around)}
            ended = {new._replace(jump="") if new.jump == "continue" else new for new in ended}
            if ended <= out:
                break
            out |= ended
            states = running(ended)
        return out

    def _last_round(self, node: Node, states: States, around: Around, *, once: bool = False) -> States:
        """What is left of a body's failures after the last of several rounds."""
        rounds = self._rounds(node, states, around)
        ended, left = running(rounds), _left(rounds)
        lost = codes(ended) & WORK
        if lost and not running(left) and not once:
            self._note("loop_hides_failure", self._script.span(node), around, alone=lost <= CHECKS)
            ended = _as_unrelated(ended)
        elif harmless(codes(ended | running(left))):
            self._note("loop_hides_failure", self._script.span(node), around)
        return ended | left


# ------------------------------------------------------------------------------------------------------- helpers


def _operands(node: Node) -> Iterator[Node]:
    """The words of a test."""
    for child in node.children:
        if child.type.endswith("_expression"):
            yield from _operands(child)
        elif child.type not in ("[", "]", "[[", "]]", "((", "))"):
            yield child


def _after(before: State, ended: States) -> States:
    """The states after a branch. What only a failure unrelated to the work leads to, is unrelated to it as well."""
    return _as_unrelated(ended) if before.code == UNRELATED else ended


def _as_unrelated(states: States) -> States:
    return {state._replace(code=UNRELATED) if state.code else state for state in states}


def _as_work(states: States) -> States:
    """The same, where a check may have other uses than its exit code."""
    return {state._replace(code=FAILED) if state.code in CHECKS else state for state in states}


def _left(rounds: States) -> States:
    """The states that leave a loop early; `break` ends here."""
    return {state._replace(jump="") if state.jump == "break" else state for state in rounds if state.jump}


def _forgetting(state: State, names: Iterable[str | None]) -> State:
    """The state without what is known about some variables, which may be given as `name=value` or `name++`."""
    known = {found[0] for name in names if (found := re.match(r"\w+", name or ""))}
    return state.but(variables=tuple(fact for fact in state.shell.variables if fact[0] not in known))
