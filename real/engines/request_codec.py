"""``RequestCodec``: turns requests of the control plane into bodies for vLLM, and its answers into replies.

Prompts are those of the learner, token by token, with one difference: a screenshot is sent with a single image token,
which the server expands to as many as the screenshot has. Their number follows from its size: no pixel is read here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dartsim.core.types import Request
from dartsim.real.engines.errors import EngineBadReply
from dartsim.real.vlm.images import Picture
from dartsim.real.vlm.sampling import reply_keys

if TYPE_CHECKING:
    from dartsim.real.vlm.model import Vlm


def lower_bounds(places: Sequence[Mapping[str, Any]], num_allowed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return a lower bound of the distribution's entropy at each position of a reply, nats.

    Exact if the given tokens are all that are allowed. Otherwise no missing token is likelier than the least likely of
    the others, so each adds at least its probability times minus that log-probability.
    """
    rows = []
    for place in places:
        sampled = place["token_id"]
        others = [entry["logprob"] for entry in place["top_logprobs"] if entry["token_id"] != sampled]
        rows.append([place["logprob"], *others])
    lengths = np.array([len(row) for row in rows])
    logprobs_NK = np.zeros((len(rows), lengths.max()))
    listed_NK = np.arange(logprobs_NK.shape[1]) < lengths[:, None]
    logprobs_NK[listed_NK] = [logprob for row in rows for logprob in row]
    known_NK = listed_NK & (logprobs_NK > -1_000.0)  # masked tokens come as -9999
    shares_NK = np.exp(logprobs_NK, where=known_NK, out=np.zeros_like(logprobs_NK))
    entropies = -(shares_NK * logprobs_NK).sum(axis=1)
    some_missing = (lengths > 1) & (lengths < num_allowed) & (known_NK == listed_NK).all(axis=1)
    lowest = np.where(listed_NK, logprobs_NK, 0.0)[:, 1:].min(axis=1, initial=0.0)
    missing = np.maximum(0.0, 1.0 - shares_NK.sum(axis=1))
    return np.asarray(entropies - np.where(some_missing, missing * lowest, 0.0), dtype=np.float32)


_REFUSE = -100.0
"""Logit bias of a token that is not allowed: a probability of 1e-43 against the likeliest one's is 0 in float32."""


class EncodedRequest(NamedTuple):
    """A request ready to be sent.

    ``body`` lacks an id and ``content_parts``, which are the ``pictures``; ``prompt_tokens`` is the length of the whole
    prompt.
    """

    body: dict[str, Any]
    pictures: tuple[Picture, ...]
    prompt_tokens: int

    def resampled(self, number: int) -> EncodedRequest:
        """Return the same request with another seed, not at temperature 0, for its ``number``-th further try."""
        sampling = self.body["sampling_params"]
        seed = int(reply_keys([(sampling["seed"], number)])[0]) >> 1
        changed = {"seed": seed, "temperature": sampling["temperature"] or 1.0}
        return self._replace(body={**self.body, "sampling_params": {**sampling, **changed}})


class DecodedReply(NamedTuple):
    """A whole answer; ``oldest`` and ``newest`` are the versions of its tokens.

    ``cached_tokens`` counts prompt tokens found in the prefix cache; None if the engine does not say.
    """

    action: str
    tokens: np.ndarray[Any, np.dtype[np.int64]]
    logprobs: np.ndarray[Any, np.dtype[np.float32]]
    entropies: np.ndarray[Any, np.dtype[np.float32]] | None
    oldest: int
    newest: int
    cached_tokens: int | None


class RequestCodec:
    """Turns requests into bodies of ``POST /inference/v1/generate``, and answers into content.

    The grammar's mask is exactly the learner's: vLLM gets the allowed tokens (actions) or the refused ones (free text),
    whichever are fewer. Its structured outputs cannot express the mask: they constrain characters, and allow every
    tokenization of a word.

    Args:
        vlm: The model, for its vocabulary, prompts, images and grammar.
        top_logprobs: Likeliest tokens asked for at every position, for ``Reply.entropies``; 0 leaves them None. vLLM
            reports no entropies. The k likeliest tokens give a lower bound, which is exact where the grammar allows at
            most k tokens (``lower_bound``). It costs the engine little and the reply about 60 bytes a token and entry.
            High-entropy selection keeps every turn whose entropies are None: with that rule, ask for 20, or let the
            learner compute them.
        model: Name of the adapter that is asked for; None: the model itself.
    """

    def __init__(self, vlm: Vlm, *, top_logprobs: int = 0, model: str | None = None) -> None:
        self.vlm = vlm
        self._model: dict[str, Any] = {} if model is None else {"model": model}
        self._top = top_logprobs
        self._sampling = self._sampling_params()
        self._num_allowed = int(vlm.grammar.allowed.sum())

    def encode(self, request: Request) -> EncodedRequest:
        prompt = self.vlm.prompts.build(request.observation, request.history)
        key = int(reply_keys([(request.attempt.seed, request.turn)])[0]) >> 1
        body: dict[str, Any] = {
            **self._model,
            "token_ids": prompt.short_tokens,
            "sampling_params": {**self._sampling, "seed": key},
        }
        return EncodedRequest(body, prompt.pictures, prompt.length)

    def decode(self, answer: Mapping[str, Any], request: EncodedRequest) -> DecodedReply:
        """Read an answer to a request.

        Raises:
            EngineBadReply: If a field is missing, a token is not allowed, or the prompt had another length.
        """
        try:
            usage, choice = answer["usage"], answer["choices"][0]
            spans = [int(span["version"]) for span in choice["weight_versions"]]
            places = choice["logprobs"]["content"]
            tokens = [int(token) for token in choice["token_ids"]]
            logprobs = [float(place["logprob"]) for place in places]
            prompt_tokens = int(usage["prompt_tokens"])
            details = usage.get("prompt_tokens_details") or {}
            cached = None if details.get("cached_tokens") is None else int(details["cached_tokens"])
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise EngineBadReply(f"the engine answered {str(answer)[:300]}: {error!r} is missing or odd") from error
        if prompt_tokens != request.prompt_tokens:
            raise EngineBadReply(
                f"the engine read a prompt of {prompt_tokens} tokens, wanted {request.prompt_tokens}; are its "
                "vocabulary and image rules those of the learner?"
            )
        if len(logprobs) != len(tokens) or not tokens:
            raise EngineBadReply(f"the engine answered {len(tokens)} tokens and {len(logprobs)} log-probabilities")
        try:
            num = self.vlm.grammar.reply_length(tokens)
        except ValueError as error:
            raise EngineBadReply(f"the engine's reply breaks the grammar sent with the request: {error}") from error
        entropies = lower_bounds(places[:num], self._num_allowed) if self._top else None
        return DecodedReply(
            self.vlm.vocabulary.decode(tokens[:num]),
            np.asarray(tokens[:num], dtype=np.int64),
            np.asarray(logprobs[:num], dtype=np.float32),
            entropies,
            min(spans),
            max(spans),
            cached,
        )

    def _sampling_params(self) -> dict[str, Any]:
        """Return the sampling parameters that all requests share."""
        grammar, decoding = self.vlm.grammar, self.vlm.decoding
        longest = min(grammar.longest or decoding.max_new_tokens, decoding.max_new_tokens)
        return {
            "max_tokens": longest,
            "temperature": decoding.temperature,
            "top_p": 1.0,
            "logprobs": self._top,
            "stop_token_ids": np.flatnonzero(grammar.ends).tolist(),
            "detokenize": False,
            **self._mask(),
        }

    def _mask(self) -> dict[str, Any]:
        allowed = self.vlm.grammar.allowed
        yes, no = np.flatnonzero(allowed), np.flatnonzero(~allowed)
        if len(yes) <= len(no):
            return {"ignore_eos": True, "allowed_token_ids": yes.tolist()}
        return {"ignore_eos": True, "logit_bias": {str(token): _REFUSE for token in no.tolist()}}
