"""Java's regular expressions in RE2's words; what RE2 cannot do the same way is refused."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.expressions.mismatch import Mismatch

_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"  # Java's line terminators
_BLANK = r"\t\n\x{b}\f\r "  # Java's \s
_CLASSES = {"d": "0-9", "w": "a-zA-Z0-9_", "s": _BLANK}
_CONTROLS = {"t": r"\t", "n": r"\n", "r": r"\r", "f": r"\f", "a": r"\a", "e": r"\x{1b}"}
_MAX_REPEAT = 1000  # RE2's limit


@dataclass(frozen=True, slots=True)
class Regex:
    """A translated pattern: RE2's text, how many groups it has, and whether it can match the empty text."""

    text: str
    groups: int
    nullable: bool
    ends: bool  # it has a $, which here takes a last line terminator into the match


def translate(pattern: str) -> Regex:
    """Return a Java pattern in RE2's dialect.

    Raises:
        Mismatch: the pattern is wrong, or means something that RE2 cannot do.

    """
    reader = _Reader(pattern)
    text, nullable = reader.alternatives()
    if reader.at < len(pattern):
        reader.refuse("an unmatched )")
    return Regex(text, reader.groups, nullable, reader.ends)


class _Reader:
    """Reads a pattern from left to right; each method returns RE2 text and whether it may match nothing."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.groups = 0
        self.ends = False
        self.any_case = False
        self.dot_all = False

    def refuse(self, what: str) -> None:
        raise Mismatch(
            f"the pattern {self.pattern!r} has {what}, which is not supported",
            detail="Patterns are Java's; they are computed by RE2, which has no look-around and no back-references.",
        )

    def peek(self, count: int = 1) -> str:
        return self.pattern[self.at : self.at + count]

    def take(self, count: int = 1) -> str:
        taken = self.peek(count)
        if len(taken) < count:
            self.refuse("an end too early")
        self.at += count
        return taken

    def alternatives(self) -> tuple[str, bool]:
        texts, nullable = [], False
        while True:
            text, empty = self.sequence()
            texts.append(text)
            nullable = nullable or empty
            if self.peek() != "|":
                return "|".join(texts), nullable
            self.take()

    def sequence(self) -> tuple[str, bool]:
        translated, nullable = "", True
        while self.peek() and self.peek() not in "|)":
            text, empty = self.atom()
            text, empty = self.quantified(text, nullable=empty)
            translated += text
            nullable = nullable and empty
        return translated, nullable

    def atom(self) -> tuple[str, bool]:
        here = self.take()
        if here == "(":
            return self.group()
        if here == "[":
            return self.char_class(), False
        if here == "\\":
            return self.escape()
        if here == ".":
            return ("(?s:.)" if self.dot_all else f"[^{_ENDS}]"), False
        if here == "^":
            return "^", True
        if here == "$":
            self.ends = True
            return rf"(?:\r\n|[{_ENDS}])?\z", True
        if here in "*+?{":
            self.refuse(f"a {here} with nothing before it")
        return self.char(here), False

    def char(self, here: str) -> str:
        if self.any_case and here.isascii() and here.isalpha():
            return f"[{here.lower()}{here.upper()}]"
        return f"\\{here}" if here in r"\.+*?()|[]{}^$" else here

    def group(self) -> tuple[str, bool]:
        opening = "("
        outer = self.any_case, self.dot_all
        if self.peek() == "?":
            self.take()
            flags = ""
            while self.peek() in ("i", "s"):
                flags += self.take()
            if self.peek() not in (":", ")") or (self.peek() == ")" and not flags):
                self.refuse(f"(?{self.peek()}")
            self.any_case, self.dot_all = self.any_case or "i" in flags, self.dot_all or "s" in flags
            if self.take() == ")":
                return "", True
            opening = "(?:"
        else:
            self.groups += 1
        text, nullable = self.alternatives()
        if self.peek() != ")":
            self.refuse("a ( that is never closed")
        self.take()
        self.any_case, self.dot_all = outer
        return f"{opening}{text})", nullable

    def quantified(self, text: str, *, nullable: bool) -> tuple[str, bool]:
        here = self.peek()
        if not here or here not in "*+?{":
            return text, nullable
        if not text or text in ("^", r"\z", r"\A"):
            self.refuse(f"a {here} with nothing before it")
        mark = self.take()
        least = 1 if mark == "+" else 0
        if mark == "{":
            end = self.pattern.find("}", self.at)
            inner = self.pattern[self.at : end] if end >= 0 else ""
            low, comma, high = inner.partition(",")
            if not low.isdecimal() or (high and not high.isdecimal()) or int(high or low) > _MAX_REPEAT:
                self.refuse(f"the repetition {{{inner}}}")
            self.at = end + 1
            mark, least = f"{{{low}{comma}{high}}}", int(low)
        if self.peek() == "+":
            self.refuse("a possessive quantifier")
        if self.peek() == "?":
            mark += self.take()
        if self.peek() and self.peek() in "*+?{":
            self.refuse("two quantifiers in a row")
        return text + mark, nullable or least == 0

    def escape(self) -> tuple[str, bool]:
        here = self.take()
        if here in _CLASSES:
            return f"[{_CLASSES[here]}]", False
        if here.lower() in _CLASSES:
            return f"[^{_CLASSES[here.lower()]}]", False
        if here in "bB":
            return f"\\{here}", True
        if here in "Az":
            return f"\\{here}", True
        if here in "pP":
            return self.category(here), False
        return self.char_text(self.escaped_char(here)), False

    def char_text(self, char: str) -> str:
        return self.char(char) if char.isprintable() else f"\\x{{{ord(char):x}}}"

    def escaped_char(self, here: str) -> str:
        """Return the character that an escape means."""
        if here in _CONTROLS:
            return {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}[here]
        if here in "xu":
            digits = self.take(2 if here == "x" else 4)
            try:
                return chr(int(digits, 16))
            except ValueError:
                self.refuse(f"\\{here}{digits}")
        if here.isascii() and here.isalnum():
            self.refuse("the back-reference" * here.isdecimal() + f" \\{here}")
        return here

    def category(self, letter: str) -> str:
        """Return a general category of Unicode, which means the same in both."""
        if self.take() != "{":
            self.refuse(f"\\{letter} without braces")
        end = self.pattern.find("}", self.at)
        name = self.pattern[self.at : end] if end >= 0 else ""
        if name not in ("L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "N", "Nd", "Nl", "No", "P", "S", "Z", "Zs"):
            self.refuse(f"\\{letter}{{{name}}}")
        self.at = end + 1
        return f"\\{letter}{{{name}}}"

    def char_class(self) -> str:
        negated = self.peek() == "^"
        if negated:
            self.take()
        parts: list[str] = []
        while self.peek() != "]" or not parts:
            if self.peek() in ("[", "]") or self.peek(2) == "&&":
                self.refuse("a set within a set")
            parts.append(self.class_item())
        self.take()
        return f"[{'^' if negated else ''}{''.join(parts)}]"

    def class_item(self) -> str:
        here = self.take()
        if here == "\\":
            letter = self.take()
            if letter in _CLASSES:
                return _CLASSES[letter]
            if letter in "DWS":
                self.refuse(f"\\{letter} in a set")
            if letter in "pP":
                return self.category(letter)
            here = self.escaped_char(letter)
        last = here
        if self.peek() == "-" and self.peek(2) not in ("-]", "-"):
            self.take()
            last = self.take()
            if last == "\\":
                last = self.escaped_char(self.take())
            if last == "[" or last < here:
                self.refuse("a wrong range in a set")
        return self.ranges(here, last)

    def ranges(self, first: str, last: str) -> str:
        members = f"\\x{{{ord(first):x}}}" + (f"-\\x{{{ord(last):x}}}" if last != first else "")
        if self.any_case:
            for low, high, shift in (("a", "z", -32), ("A", "Z", 32)):
                start, stop = max(first, low), min(last, high)
                if start <= stop:
                    members += f"\\x{{{ord(start) + shift:x}}}-\\x{{{ord(stop) + shift:x}}}"
        return members
