"""Queries and documents in plain Python, one by one: what searches are compared with."""

from __future__ import annotations

import unicodedata


def terms_of(text):
    """Return the terms of a text: letters, marks, digits and underscores, composed, case folded letter by letter."""
    terms, term = [], ""
    for letter in unicodedata.normalize("NFC", text or "") + " ":
        if unicodedata.category(letter)[0] in "LMN" or letter == "_":
            term += _folded(letter)
        elif term:
            terms.append(term)
            term = ""
    return terms


def _folded(letter):
    upper = letter.upper()
    lower = (upper if len(upper) == 1 else letter).lower()
    return lower if len(lower) == 1 else lower[0]


def tree_of(query):
    """Return a query as ("word", terms), ("begin", term), ("not", tree), ("all", trees) or ("any", trees)."""
    tree, rest = _any(_tokens(query))
    assert not rest
    return tree


def _tokens(query):
    tokens, at = [], 0
    while at < len(query):
        if query[at] == '"':
            end = query.index('"', at + 1)
            tokens.append(("phrase", query[at + 1 : end]))
            at = end + 1
        elif query[at] in "()-" and (query[at] != "-" or not tokens or query[at - 1] in " (-"):
            tokens.append((query[at], None))
            at += 1
        elif query[at] == " ":
            at += 1
        else:
            end = next((i for i in range(at, len(query)) if query[i] in ' ()"'), len(query))
            tokens.append(("word", query[at:end]))
            at = end
    return tokens


def _any(tokens):
    parts, tokens = [], [("word", "OR"), *tokens]
    while tokens and tokens[0] == ("word", "OR"):
        tree, tokens = _all(tokens[1:])
        parts.append(tree)
    return ("any", parts), tokens


def _all(tokens):
    parts = []
    while tokens and tokens[0][0] != ")" and tokens[0] != ("word", "OR"):
        tree, tokens = _one(tokens)
        parts.append(tree)
    return ("all", parts), tokens


def _one(tokens):
    (kind, text), rest = tokens[0], tokens[1:]
    if kind == "-":
        tree, rest = _one(rest)
        return ("not", tree), rest
    if kind == "(":
        tree, rest = _any(rest)
        return tree, rest[1:]
    if kind == "word" and text.endswith("*"):
        return ("begin", terms_of(text)[0]), rest
    return ("word", terms_of(text)), rest


def meets(tree, terms):
    """Return whether a document of these terms meets a query."""
    kind, of = tree
    if kind == "word":
        return any(terms[at : at + len(of)] == of for at in range(len(terms)))
    if kind == "begin":
        return any(term.startswith(of) for term in terms)
    if kind == "not":
        return not meets(of, terms)
    return (all if kind == "all" else any)(meets(part, terms) for part in of)
