"""What the workers say: drawn outcomes, or a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from dartsim.core.image_size import checkpoint_family, resize_rules
from dartsim.core.registry import Choice, ComponentSection
from dartsim.core.section import Positive, Section, Share

AGENT = Choice("policy", "drawn")


class SurrogateConfig(Section):
    """The surrogate policy: outcomes and lengths are drawn, nothing is learned."""

    mean_success: Share | None = Field(
        0.594, description="Mean success rate over tasks; none: the 0.559 of the measured deciles."
    )
    success_turns_mean: float = Field(11.6, gt=0, description="Mean turns of a success, lognormal (range 10 to 15.6).")
    success_turns_sd: float = Field(6.0, gt=0, description="Standard deviation of the turns of a success.")
    failure_turns_mean: float = Field(19.6, gt=0, description="Mean turns of a failure, lognormal (range 18 to 21).")
    failure_turns_sd: float = Field(9.0, gt=0, description="Standard deviation of the turns of a failure.")
    task_length_sd: float = Field(0.35, ge=0, description="Standard deviation of tasks' length factors (mean 1).")
    outcomes: str | None = Field(
        None,
        description="File timings.jsonl of a run whose outcomes and lengths are replayed, group by group; none: they "
        "are drawn. `dartsim cluster` sets it in a twin.",
    )

    def turns(self, *, success: bool) -> tuple[float, float]:
        """Return mean and standard deviation of the turns of successes or failures, before the turn limit."""
        if success:
            return self.success_turns_mean, self.success_turns_sd
        return self.failure_turns_mean, self.failure_turns_sd


class PolicyConfig(Section):
    """What the workers say."""

    kind: Literal["surrogate", "vlm"] = Field(
        "surrogate",
        description="surrogate: no model acts, policy.agent does; vlm: a vision-language model acts and learns.",
    )
    agent: Annotated[ComponentSection, AGENT] = Field(
        default_factory=AGENT, description="surrogate: who acts in place of a model."
    )
    screen: Positive = Field(112, description="vlm: width and height of the mock desktop, pixels.")
    grid: Positive = Field(3, description="vlm: cells per side of the grid that clicks aim at.")
    grammar: Literal["clicks", "clicks_and_done", "clicks_done_fail", "listed", "ui_tars"] = Field(
        "clicks",
        description="vlm: form of the model's output: one token per click, done or fail (clicks, clicks_and_done, "
        "clicks_done_fail), one token per reply of policy.actions (listed), "
        "or free text in UI-TARS's form (Thought, Action).",
    )
    actions: list[str] = Field(
        default_factory=list,
        description="listed: the model's replies, each of one or more lines of the compact grammar, one action a line.",
    )
    patch_size: Positive = Field(14, description="vlm without policy.model: pixels a side of a patch of a screenshot.")
    merge_size: Positive = Field(
        2, description="vlm without policy.model: patches a side that become one token of the prompt."
    )
    family: Literal["qwen2_5_vl", "qwen3_vl"] = Field(
        "qwen2_5_vl", description="vlm: model class of transformers; that of policy.model, if there is one, counts."
    )
    model: str | None = Field(
        None,
        description="vlm: folder of a checkpoint (config, safetensors, tokenizer), or an id of the Hugging Face hub "
        "(Qwen/Qwen3-VL-2B-Instruct), downloaded once; none: tiny random weights.",
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="vlm: type of the model's weights; bfloat16 is for LoRA. What is trained (LoRA, or masters of the "
        "weights), gradients and the optimizer's state are in float32.",
    )
    prompt: Literal["ui_tars_1_5", "dart", "plain"] = Field(
        "ui_tars_1_5",
        description="ui_tars: the first message, and how earlier replies are shown: as by OSWorld's agent of "
        "UI-TARS-1.5; as by DART, which adds a line about the password and puts the first screenshot into the first "
        "message; or plain words for other models, which say what the unit of coordinates is.",
    )
    language: str = Field(
        "English", description="ui_tars: language of UI-TARS-1.5's thoughts (OSWorld's runner: Chinese; DART: English)."
    )
    instructions: str | None = Field(
        None, description="ui_tars: text file with another first message, in which {instruction} stands for the task."
    )
    malformed: Literal["skip", "done", "fail"] = Field(
        "skip",
        description="ui_tars: a reply that cannot be read changes nothing; ends the attempt as done (OSWorld's agent, "
        "once malformed_tries are used up); or ends it as failed (DART, at once).",
    )
    malformed_tries: Positive = Field(
        1,
        description="ui_tars on vLLM or an endpoint: how often a reply that cannot be read is sampled, at the same "
        "temperature, or at 1 if that is 0 (OSWorld's agent: 3, the later ones at 1; DART: 1).",
    )
    max_new_tokens: Positive = Field(500, description="ui_tars: longest reply, tokens (DART: 500; OSWorld: 1000).")
    temperature: float = Field(
        1.0,
        ge=0.0,
        description="vlm: of sampling (DART: 1); 0 takes the likeliest tokens, for evaluation only (OSWorld's agent). "
        "Both also set a frequency penalty of 1, and OSWorld's agent top_p to 0.9, which would make the "
        "log-probabilities those of no model.",
    )
    call_user_waits: int = Field(
        0,
        ge=0,
        description="ui_tars: how often in an attempt call_user() waits, before it declares the task infeasible "
        "(OSWorld's agent of UI-TARS-1.5: 3; DART: 0).",
    )
    max_images: Positive = Field(
        default_factory=lambda data: 1 if data.get("kind") == "vlm" else 5,
        description="Screenshots in a prompt, including the current one (OSWorld, DART: 5); default of vlm: 1.",
    )
    images_after_cut: Positive | None = Field(
        None,
        description="When a prompt would exceed max_images, keep only this many screenshots, so that a prefix cache "
        "serves the turns in between, and the trainer computes them as one sequence; none: drop only the oldest one at "
        "every turn (DART).",
    )
    max_texts: int = Field(
        default_factory=lambda data: 0 if data.get("kind") == "vlm" else 35,
        ge=0,
        description="Earlier replies in a prompt (OSWorld: all; DART: 35); default of vlm: 0. With images_after_cut, "
        "they are dropped when screenshots are.",
    )

    @property
    def model_family(self) -> Literal["qwen2_5_vl", "qwen3_vl"]:
        """The class of the checkpoint in ``model``; ``family`` if there is none or its class is unknown."""
        found = None if self.model is None else checkpoint_family(Path(self.model))
        return "qwen2_5_vl" if found == "qwen2_5_vl" else "qwen3_vl" if found == "qwen3_vl" else self.family

    @property
    def sees_whole_screen(self) -> bool:
        """Whether a real desktop's screenshots are shown as they are, and not as a square of ``screen`` pixels."""
        return self.grammar in ("ui_tars", "listed")

    @property
    def action_grammar(self) -> tuple[str, dict[str, Any]]:
        """Name and options of the grammar of a model's actions.

        Models based on Qwen2.5-VL (UI-TARS-1.5) use pixels of the resized screenshot, those on Qwen3-VL thousandths.

        Raises:
            ConfigError: If the checkpoint lacks the settings of its image processor.
        """
        if self.grammar != "ui_tars":
            return "compact", {"columns": self.grid, "rows": self.grid}
        absolute = self.model_family == "qwen2_5_vl"
        options: dict[str, Any] = {
            "absolute": absolute,
            "malformed": self.malformed,
            "call_user_waits": self.call_user_waits,
        }
        if absolute and self.model is not None and Path(self.model).is_dir():
            rules = resize_rules(Path(self.model))
            options |= {"factor": rules.factor, "min_pixels": rules.min_pixels, "max_pixels": rules.max_pixels}
        return "ui_tars", options
