"""Constructions that a reader has to decode, counted: python -m tests.wording [--where] [PATH ...].

Looks at comments, docstrings and sentences in strings of app, sdk and spark, at the text of templates, SQL comments,
the manual and README. Fails where there are more than MOST, which only goes down.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MOST: Final = 40
ROOT: Final = Path(__file__).parents[1]
LOOKED_AT: Final = (
    "app",
    "sdk",
    "spark",
    "docs",
    "deploy",
    "migrations",
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
)
# What programs write, what was decided and said before, and texts of others.
LEFT_OUT: Final = re.compile(
    r"/(vendor|pictures|benchmarks)/|docs/adr/|docs/(schema\.sql|routes\.txt)|requirements/|/dist/"
)
SUFFIXES: Final = (".py", ".sql", ".md", ".html", ".js", ".yml", ".yaml", ".toml")

_VERB: Final = r"(?:is|was|are|were|has|had|have|can|could|may|must|will|it|they|there|does|did)"
PATTERNS: Final = {
    "whoever": r"\b(?:whoever|whosoever|whichever|somebody|nobody else|anybody)\b",
    "who without a noun": r"(?:^|[.:;(] |, (?:and|or|but) )[Ww]ho (?!am\b)\w+s?\b(?![^.?!]*\?)",
    "for who, of whom": r"\b(?:for|of|by|from|with|than|beside) whom?\b",
    "what without a noun": rf"(?:^|[.:;(] )What {_VERB}\b(?![^.!]*\?)|"
    rf"\b(?:of|for|by|with|from|to|and|or|than|beside|but|as) what {_VERB}\b",
    "those that": r"(?<!\bof )\b(?:those|that|these) (?:that|who|which|whose|of whom)\b",
    "fronted Of a": r"(?:^|[.:;] )Of (?:an?|the|its|their|each|all|these|those|what|one|two|such|others|many)\b",
    "is to be": r"\b(?:is|are|was|were) (?:not )?to be\b",
    "; and": r"; and\b",
    "decoded words": r"\b(?:may|can|will|does|do) no more\b|\b(?:is|are) none (?:that|of)\b|\bcan(?:'t|not) be told\b|"
    r"\bnot so\b|\bin some(?:body|one)(?: else)?'s hands\b|\bat the moment\b",
    "says nothing": r"^(?:See [\w.`]+|Theirs|Its own|The same|As [\w.`]+|What it says)\.$",
}
_COMPILED: Final = {name: re.compile(pattern, re.MULTILINE) for name, pattern in PATTERNS.items()}
_PARAMETERS: Final = re.compile(r"\$\d+")
SQL: Final = re.compile(r"\b(?:SELECT|INSERT|UPDATE|DELETE) ")
MANY: Final = 3  # parameters in a line of a SQL header


def _python(text: str) -> Iterator[tuple[int, str]]:
    """Comments, whose lines in a row are one text, and strings that have a sentence."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        text_of = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if isinstance(node, ast.Constant) and text_of.count(" ") > 1 and not SQL.search(text_of):
            yield node.lineno, _joined(text_of)
    row: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1 and row:
                yield first, " ".join(row)
                row = []
            first = first if row else token.start[0]
            row.append(token.string.lstrip("#: "))
            last = token.start[0]
    if row:
        yield first, " ".join(row)


def _joined(text: str) -> str:
    """Paragraphs as lines."""
    return "\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n|\n\s*(?=[-*|]|\w+: )", text))


def _sql(text: str) -> Iterator[tuple[int, str]]:
    row: list[str] = []
    first = 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        comment = line.partition("--")[2].strip() if "--" in line else None
        if comment is not None and line.lstrip().startswith("--"):
            first = first if row else number
            row.append(comment)
            continue
        if row:
            yield first, " ".join(row)
            row = []
        if comment:
            yield number, comment


def _markdown(text: str) -> Iterator[tuple[int, str]]:
    fenced, first = False, 0
    row: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        if fence or fenced or not line.strip() or line.lstrip().startswith(("|", "-", "#", "*", "1", "2", "3")):
            if row:
                yield first, " ".join(row)
                row = []
            fenced ^= fence
            if fence or fenced or not line.strip():
                continue
        first = first if row else number
        row.append(line.strip(" |-#"))
    if row:
        yield first, " ".join(row)


def _template(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        words = re.sub(r"<[^>]*>|\{%.*?%\}", "\n", line)
        yield number, words
        yield from ((number, said) for said in re.findall(r'(?:title|aria-label|placeholder)="([^"]+)"', line))


def _other(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(("#", "//", "*")) or ": " in line:
            yield number, line.strip(' #/*"')


READERS: Final = {".py": _python, ".sql": _sql, ".md": _markdown, ".html": _template}


def found(path: Path) -> Iterator[tuple[str, int, str]]:
    """Each construction in a file: its name, the line where its text begins, and the words around it."""
    text = path.read_text()
    for line, said in READERS.get(path.suffix, _other)(text):
        plain = re.sub(r"`[^`]*`", "`x`", said)
        for name, pattern in _COMPILED.items():
            for match in pattern.finditer(plain):
                yield name, line, plain[max(match.start() - 20, 0) : match.end() + 50].replace("\n", " ")
    if path.suffix == ".sql":
        for number, one in enumerate(text.splitlines(), 1):
            if one.startswith("--") and len(set(_PARAMETERS.findall(one))) >= MANY:
                yield "parameters in prose", number, one[:90]


def paths(*under: str) -> list[Path]:
    """The files that are looked at."""
    command = ["git", "ls-files", "-z", "--", *(under or LOOKED_AT)]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return [ROOT / name for name in names if name.endswith(SUFFIXES) and not LEFT_OUT.search(name)]


def main(*arguments: str) -> None:
    where, under = "--where" in arguments, [one for one in arguments if one != "--where"]
    count: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for path in paths(*under):
        name = path.relative_to(ROOT).as_posix()
        for construction, line, words in found(path):
            count[construction] += 1
            files[name] += 1
            if where:
                print(f"{name}:{line}: {construction}: {words}")
    for construction, n in count.most_common():
        print(f"{n:6,}  {construction}")
    print(f"{count.total():6,}  in {len(files)} files")
    if not under and count.total() > MOST:
        sys.exit(f"{MOST:,} are allowed. Reword what you added: python -m tests.wording --where FILE")


if __name__ == "__main__":
    main(*sys.argv[1:])
