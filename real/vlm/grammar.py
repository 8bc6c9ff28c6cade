"""``TokenGrammar``: the tokens that a reply may contain, for worker and learner alike.

Sampling only allowed tokens, and computing the learner's log-probabilities under the same mask, keeps the special
tokens of the chat template and of images out of replies (a sampled image token breaks the next forward pass) and
malformed actions out of exploration, without making the importance ratios wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from dartsim.core.errors import ConfigError
from dartsim.real.vlm.ui_tars import reply_parts
from dartsim.real.vlm.vocabulary import Vocabulary


class TokenGrammar:
    """Allows the same tokens at every position of a reply.

    Attributes:
        allowed: bool [vocabulary].
        ends: bool [vocabulary], allowed tokens that end a reply.
        longest: Tokens of the longest reply, or None if there is no limit.
    """

    def __init__(self, vocabulary: Vocabulary, allowed: NDArray[np.bool_], ends: Iterable[int]) -> None:
        self.vocabulary = vocabulary
        self.allowed = allowed
        self.ends = np.zeros_like(allowed)
        self.ends[list(ends)] = True
        self.longest = 1 if (allowed == self.ends).all() else None

    def reply_length(self, tokens: Sequence[int]) -> int:
        """Return the number of tokens up to the end of a reply.

        Raises:
            ValueError: If one of them is not allowed.
        """
        for place, token in enumerate(tokens):
            if not (0 <= token < len(self.allowed) and self.allowed[token]):
                raise ValueError(f"token {token} is not allowed at position {place} of a reply")
            if self.ends[token]:
                return place + 1
        return len(tokens)

    def check(self, tokens: Sequence[int]) -> None:
        """Check a reply, which may lack its end.

        Raises:
            ValueError: If the grammar does not allow it.
        """
        if (length := self.reply_length(tokens)) < len(tokens):
            raise ValueError(f"token {tokens[length]} is not allowed at position {length} of a reply: it has ended")

    def tokens(self, action: str) -> list[int]:
        """Return an action's tokens as this grammar writes it, for demonstrations.

        Raises:
            ValueError: If the grammar has no way to write it.
        """
        tokens = list(self.vocabulary.spell(reply_parts(action)))
        if not tokens or not self.ends[tokens[-1]]:
            tokens.append(self.vocabulary.end)
        self.check(tokens)
        return tokens


def free_grammar(vocabulary: Vocabulary, *, size: int) -> TokenGrammar:
    """Return the grammar of any text, closed by the end token; the only special tokens in it are grounding tokens."""
    allowed = np.ones(size, dtype=bool)
    allowed[list(vocabulary.special)] = False
    allowed[vocabulary.size :] = False  # padding of the embedding, not tokens
    allowed[vocabulary.end] = True
    return TokenGrammar(vocabulary, allowed, [vocabulary.end])


def action_grammar(vocabulary: Vocabulary, actions: Sequence[str], *, size: int) -> TokenGrammar:
    """Return the grammar of a list of actions, each of which is a token and a whole reply.

    Raises:
        ConfigError: If the vocabulary has no token for one of them.
    """
    allowed = np.zeros(size, dtype=bool)
    for action in actions:
        tokens = vocabulary.encode(action)
        if len(tokens) != 1:
            raise ConfigError(
                f"{action!r} is {len(tokens)} tokens of this vocabulary, and every action has to be one; with a "
                'checkpoint that was not made by dartsim, set policy.grammar = "ui_tars"'
            )
        allowed[tokens[0]] = True
    return TokenGrammar(vocabulary, allowed, np.flatnonzero(allowed))
