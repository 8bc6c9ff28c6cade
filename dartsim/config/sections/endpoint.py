"""An endpoint that serves someone else's model."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from dartsim.core.section import Section

KEY_VARIABLE = "OPENAI_API_KEY"
"""Environment variable with the endpoint's key, which is never written anywhere."""


class EndpointConfig(Section):
    """An OpenAI-compatible endpoint, which attempts tasks without learning (`dartsim eval --endpoint`)."""

    url: str | None = Field(None, description="Its address, such as https://api.example.com/v1.")
    model: str | None = Field(None, description="The model, by the name that the endpoint gives it.")
    options: dict[str, Any] = Field(
        default_factory=dict, description="More fields of each request, such as top_p = 0.9."
    )

    @field_validator("url")
    @classmethod
    def _check_port(cls, url: str | None) -> str | None:
        if url is not None:
            _ = urlsplit(url).port  # raises unless it is a number
        return url
