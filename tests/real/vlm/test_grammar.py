from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dartsim.core.errors import ConfigError  # noqa: E402
from dartsim.real.vlm import build  # noqa: E402
from dartsim.real.vlm.grammar import free_grammar  # noqa: E402


def test_an_action_is_one_token(make_vlm):
    vlm = make_vlm()
    assert vlm.grammar.allowed.sum() == 4
    assert vlm.grammar.longest == 1
    assert len(vlm.grammar.tokens("click 1 0")) == 1
    with pytest.raises(ValueError, match="not allowed"):
        vlm.grammar.tokens("click 2 0")
    with pytest.raises(ConfigError, match="action"):
        build(replace(vlm.config, actions=("click 1 0", "click 9 9")), vocabulary=vlm.vocabulary)


def test_free_text_has_no_special_token_but_its_end(make_vlm):
    vocabulary = make_vlm().vocabulary
    grammar = free_grammar(vocabulary, size=vocabulary.size + 5)
    assert not grammar.allowed[vocabulary.image]
    assert not grammar.allowed[vocabulary.size :].any()
    tokens = grammar.tokens("anything")
    assert tokens == [*vocabulary.encode("anything"), vocabulary.end]
    assert grammar.reply_length([*tokens, tokens[0]]) == len(tokens)
    grammar.check(tokens[:-1])  # cut by the limit
    for bad in ([*tokens, tokens[0]], [vocabulary.image], [-1], [vocabulary.size]):
        with pytest.raises(ValueError, match="not allowed"):
            grammar.check(bad)
