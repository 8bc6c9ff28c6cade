from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dartsim.core.errors import ConfigError  # noqa: E402
from dartsim.real.vlm import build, tiny  # noqa: E402
from dartsim.real.vlm.grammar import END, Slot, TokenGrammar, free_grammar  # noqa: E402


@pytest.fixture(scope="module")
def writer() -> Any:
    return build(tiny("compact", columns=16, rows=12))


def test_an_action_is_one_token(make_vlm: Any) -> None:
    grammar = make_vlm().grammar
    assert grammar.allowed.shape[0] == 1
    assert grammar.allowed[0].sum() == 4
    assert grammar.longest == 1
    assert len(grammar.tokens("click 1 0")) == 1


def test_free_text_has_no_special_token_but_its_end(make_vlm: Any) -> None:
    vocabulary = make_vlm().vocabulary
    grammar = free_grammar(vocabulary, size=vocabulary.size + 5)
    assert not grammar.allowed[0, vocabulary.image]
    assert not grammar.allowed[0, vocabulary.size :].any()
    assert grammar.follows[0, vocabulary.end] == END
    assert grammar.tokens("anything") == [*vocabulary.encode("anything"), vocabulary.end]


@pytest.mark.parametrize(
    "action",
    [
        "click 3 11",
        "double 15 0",
        "drag 1 2 3 4",
        "type hello world",
        "key enter",
        "scroll down",
        "wait",
        "done",
        "fail",
    ],
)
def test_the_compact_grammar_writes_actions(writer: Any, action: str) -> None:
    tokens = writer.grammar.tokens(action)
    assert tokens[-1] == writer.vocabulary.end
    assert writer.vocabulary.decode(tokens) == action


@pytest.mark.parametrize(
    "action", ["click 3", "click 16 0", "click 3 12", "type ", "jump 1 1", "key nokey", "done done"]
)
def test_the_compact_grammar_refuses_the_rest(writer: Any, action: str) -> None:
    with pytest.raises(ValueError, match="not allowed"):
        writer.grammar.tokens(action)


def test_whatever_it_allows_parses(writer: Any) -> None:
    from dartsim.envs.actions import make_grammar
    from dartsim.envs.actions.grammar import can_type

    actions = make_grammar("compact", 160, 120, columns=16, rows=12)
    grammar, rng = writer.grammar, np.random.default_rng(0)
    for _ in range(300):
        state, tokens = 0, []
        while state != END:
            choices = np.flatnonzero(grammar.allowed[state])
            # The end now and then, so that typing ends.
            ends = writer.vocabulary.end in choices and (len(tokens) > 20 or rng.random() < 0.1)
            tokens.append(writer.vocabulary.end if ends else int(rng.choice(choices)))
            state = int(grammar.follows[state, tokens[-1]])
        text = writer.vocabulary.decode(tokens)
        if text.isascii() and can_type(text):  # bytes that are no text become replacement characters
            assert len(actions.parse(text)) >= 1


def test_no_reply_may_begin_another(make_vlm: Any) -> None:
    vocabulary = make_vlm().vocabulary
    one, two = Slot(frozenset([10])), Slot(frozenset([11]))
    with pytest.raises(ConfigError, match="beginning of another"):
        TokenGrammar.of_patterns(vocabulary, [(one,), (one, two)], size=vocabulary.size)


def test_states_are_walked(writer: Any) -> None:
    tokens = writer.grammar.tokens("click 3 4")
    states = writer.grammar.states(tokens)
    assert states[0] == 0
    assert len(set(states)) == len(tokens)
    with pytest.raises(ValueError, match="position 4"):
        writer.grammar.states([*tokens, tokens[0]])
