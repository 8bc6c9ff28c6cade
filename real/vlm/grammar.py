"""``TokenGrammar``: the tokens that may follow, as a state machine that both worker and learner use.

Sampling only allowed tokens, and computing the learner's log-probabilities under the same mask, keeps the special
tokens of the chat template and of images out of replies (a sampled image token breaks the next forward pass) and
malformed actions out of exploration, without making the importance ratios wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dartsim.core.errors import ConfigError
from dartsim.real.vlm.ui_tars import reply_parts
from dartsim.real.vlm.vocabulary import Vocabulary

END = -1
"""The state after the last token of a reply."""
REFUSED = -2
"""The state after a token that is not allowed."""


class Slot(NamedTuple):
    """One position of a pattern: one of these tokens, or, if it repeats, any number of them."""

    tokens: frozenset[int]
    repeats: bool = False


Pattern = tuple[Slot, ...]


class TokenGrammar:
    """A deterministic state machine; state 0 is the beginning of a reply.

    Attributes:
        allowed: bool [states, vocabulary].
        follows: int32 [states, vocabulary]: the next state, ``END`` or ``REFUSED``.
        longest: Tokens of the longest reply, or None if there is no limit.
    """

    def __init__(self, vocabulary: Vocabulary, follows: Any, longest: int | None) -> None:
        self.vocabulary = vocabulary
        self.follows = np.asarray(follows, dtype=np.int32)
        self.allowed = self.follows != REFUSED
        self.longest = longest

    @classmethod
    def of_patterns(cls, vocabulary: Vocabulary, patterns: Sequence[Pattern], *, size: int) -> TokenGrammar:
        """Return the machine that accepts a reply if one of the patterns matches it.

        Raises:
            ConfigError: If after some tokens a reply is both complete and not.
        """
        start = _closure(patterns, ((number, 0) for number in range(len(patterns))))
        states: dict[frozenset[tuple[int, int]], int] = {start: 0}
        queue, rows = [start], []
        while queue:
            items = queue.pop(0)
            row = np.full(size, REFUSED, dtype=np.int32)
            for token, then in _moves(patterns, items).items():
                complete = [number for number, place in then if place == len(patterns[number])]
                if complete and len(complete) < len(then):
                    raise ConfigError(
                        f"grammar pattern {complete[0]} is the beginning of another; end both with the end token"
                    )
                if complete:
                    row[token] = END
                    continue
                if then not in states:
                    states[then] = len(states)
                    queue.append(then)
                row[token] = states[then]
            rows.append(row)
        endless = any(slot.repeats for pattern in patterns for slot in pattern)
        return cls(vocabulary, np.stack(rows), None if endless else max(map(len, patterns)))

    def states(self, tokens: Iterable[int]) -> list[int]:
        """Return the state before each token of a reply.

        Raises:
            ValueError: If the grammar does not allow the reply.
        """
        state = 0
        states: list[int] = []
        for token in tokens:
            known = 0 <= token < self.follows.shape[1]
            if state < 0 or not known or self.follows[state, token] == REFUSED:
                raise ValueError(f"token {token} is not allowed at position {len(states)} of a reply")
            states.append(state)
            state = int(self.follows[state, token])
        return states

    def tokens(self, action: str) -> list[int]:
        """Return an action's tokens as this grammar writes it, for demonstrations.

        Raises:
            ValueError: If the grammar has no way to write it.
        """
        tokens = list(self.vocabulary.spell(reply_parts(action)))
        walked = self.states(tokens)
        if not tokens or self.follows[walked[-1], tokens[-1]] != END:
            tokens.append(self.vocabulary.end)
            self.states(tokens)
        return tokens


def free_grammar(vocabulary: Vocabulary, *, size: int) -> TokenGrammar:
    """Return the grammar of any text, closed by the end token; the only special tokens in it are grounding tokens."""
    row = np.zeros((1, size), dtype=np.int32)
    row[0, list(vocabulary.special)] = REFUSED
    row[0, vocabulary.size :] = REFUSED  # padding of the embedding, not tokens
    row[0, vocabulary.end] = END
    return TokenGrammar(vocabulary, row, None)


def action_grammar(vocabulary: Vocabulary, actions: Sequence[str], *, size: int) -> TokenGrammar:
    """Return the grammar of a list of whole actions; one that is a single token needs no end token."""
    return TokenGrammar.of_patterns(vocabulary, [_literal(vocabulary, action) for action in actions], size=size)


def compact_grammar(vocabulary: Vocabulary, *, columns: int, rows: int, keys: Sequence[str], size: int) -> TokenGrammar:
    """Return the compact grammar of ``dartsim.envs.actions``, one action a reply, closed by the end token."""
    end = Slot(frozenset([vocabulary.end]))
    across, down = (_choices(vocabulary, count) for count in (columns, rows))
    # A backslash would begin an escape, which the model does not need.
    escapes = {t for t in range(vocabulary.size) if set(vocabulary.decode([t])) & set("\\\n\ufffd")}
    text = frozenset(range(vocabulary.size)) - vocabulary.special - vocabulary.grounding - escapes
    space = frozenset(vocabulary.encode(" "))
    patterns: list[Pattern] = [
        (*_slots(vocabulary, word), across, down, end) for word in ("click", "double", "right", "move")
    ]
    patterns.append((*_slots(vocabulary, "drag"), across, down, across, down, end))
    patterns.append((*_slots(vocabulary, "type"), Slot(space), Slot(text), Slot(text, repeats=True), end))
    words = [*(f"key {name}" for name in keys), "scroll up", "scroll down", "wait", "done", "fail"]
    patterns.extend((*_slots(vocabulary, word), end) for word in words)
    return TokenGrammar.of_patterns(vocabulary, patterns, size=size)


def _choices(vocabulary: Vocabulary, count: int) -> Slot:
    tokens = [vocabulary.encode(f" {number}") for number in range(count)]
    if any(len(each) != 1 for each in tokens):
        raise ConfigError(f"cells 0 to {count - 1} must be single tokens of the vocabulary, ' 0' and so on")
    return Slot(frozenset(each[0] for each in tokens))


def _slots(vocabulary: Vocabulary, text: str) -> Pattern:
    return tuple(Slot(frozenset([token])) for token in vocabulary.encode(text))


def _literal(vocabulary: Vocabulary, action: str) -> Pattern:
    slots = _slots(vocabulary, action)
    return slots if len(slots) == 1 else (*slots, Slot(frozenset([vocabulary.end])))


def _closure(patterns: Sequence[Pattern], items: Iterable[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Add the positions that are reached by skipping repeating slots."""
    closed = set()
    for number, place in items:
        closed.add((number, place))
        while place < len(patterns[number]) and patterns[number][place].repeats:
            place += 1
            closed.add((number, place))
    return frozenset(closed)


def _moves(patterns: Sequence[Pattern], items: Iterable[tuple[int, int]]) -> dict[int, frozenset[tuple[int, int]]]:
    """Return the positions after each allowed token."""
    leads: dict[int, set[tuple[int, int]]] = {}
    for number, place in items:
        if place == len(patterns[number]):
            continue
        slot = patterns[number][place]
        then = (number, place if slot.repeats else place + 1)
        for token in slot.tokens:
            leads.setdefault(token, set()).add(then)
    return {token: _closure(patterns, then) for token, then in leads.items()}
