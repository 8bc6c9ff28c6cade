"""The configuration of a run: one schema, strict, units in the names, the source of each default beside it.

Rules that span several fields are in ``dartsim.config.rules``; reading files and overrides in
``dartsim.config.load``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(ge=0.0)]
Deadline = Annotated[float, Field(gt=0.0)]
"""Longest time of a call, seconds."""
Positive = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A part of the configuration: frozen, strict, no unknown keys, every number finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class RunConfig(Section):
    """What is run, and for how long."""

    hours: float = Field(24.0, gt=0.0, description="Hours of the run's time, simulated or real.")
    seed: int = Field(0, ge=0, description="Seeds everything that is drawn.")
    updates: Positive | None = Field(None, description="Finished updates that end the run before its hours.")
    target_success: Share | None = Field(
        None, description="Success rate on held-out tasks that ends the run before its hours."
    )
    warmup_share: Share = Field(0.2, description="First share of the run that figures leave out.")
    fail_on_alarm: bool = Field(False, description="Whether an alarm ends the run, with the alarm's exit code.")


class TasksConfig(Section):
    """Which tasks are offered."""

    source: Literal["generated", "osworld", "mock", "desktop"] = Field(
        "generated",
        description="Tasks without content, OSWorld's task files, the mock desktop's, or those of our desktop image.",
    )
    count: Positive = Field(181, description="Generated or mock tasks (DART run history: 181).")
    mock: str = Field("click_button", description="mock: a family, or a suite (easy, hard, never, mixed).")
    desktop: str = Field(
        "panel", description="desktop: panel (clicks, generated) or apps (real applications, one to 15 steps)."
    )
    difficulty: int = Field(1, ge=1, le=10, description="mock: difficulty of a family's tasks.")
    held_out: int = Field(0, ge=0, description="mock: tasks that are only evaluated on.")
    folder: str | None = Field(None, description="OSWorld: folder that holds the list file and examples/.")
    list_name: str = Field("test_nogdrive", description="OSWorld: list file, without .json.")
    missing: Literal["error", "skip"] = Field("error", description="OSWorld: what to do about absent task files.")


class SurrogateConfig(Section):
    """The surrogate policy: outcomes and lengths are drawn, nothing is learned."""

    mean_success: Share | None = Field(
        0.594, description="Mean success rate over tasks; none keeps the measured deciles' .559."
    )
    domain_results: Literal["DART-GUI-7B", "UI-TARS-1.5-7B"] = Field(
        "DART-GUI-7B", description="OSWorld tasks: whose published results by domain set the difficulty."
    )
    success_turns_mean: float = Field(11.6, gt=0, description="Turns of a success, lognormal (range 10-15.6).")
    success_turns_sd: float = Field(6.0, gt=0, description="Standard deviation of the same.")
    failure_turns_mean: float = Field(19.6, gt=0, description="Turns of a failure, lognormal (range 18-21).")
    failure_turns_sd: float = Field(9.0, gt=0, description="Standard deviation of the same.")
    task_length_sd: float = Field(0.35, ge=0, description="Sd of a task's log length factor.")
    outcomes: str | None = Field(
        None,
        description="Timings of a run (timings.jsonl) whose outcomes and lengths are played again, group by group; "
        "none: they are drawn. `dartsim measure` sets it in a twin.",
    )


class PolicyConfig(Section):
    """What the workers say."""

    kind: Literal["surrogate", "vlm"] = Field(
        "surrogate", description="Drawn outcomes, or a vision-language model that sees, acts and learns."
    )
    screen: Positive = Field(112, description="vlm: width and height of the mock desktop, pixels.")
    grid: Positive = Field(3, description="vlm: cells a side that clicks are aimed at.")
    grammar: Literal["clicks", "clicks_and_done", "compact", "ui_tars"] = Field(
        "clicks",
        description="vlm: a click on a cell (or done) as one token; sentences of the compact grammar; or free text in "
        "UI-TARS's form (Thought, Action).",
    )
    family: Literal["qwen2_5_vl", "qwen3_vl"] = Field("qwen2_5_vl", description="vlm: the transformers class.")
    model: str | None = Field(
        None, description="vlm: folder of a checkpoint (config, safetensors, tokenizer); none: tiny random weights."
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="vlm: of the weights that are trained and their optimizer state; LoRA may take the less."
    )
    instructions: str | None = Field(
        None, description="ui_tars: text file shown before the task, in place of ours; {instruction} stands for it."
    )
    max_new_tokens: Positive = Field(500, description="ui_tars: longest reply, tokens (DART: 500).")
    temperature: float = Field(1.0, gt=0.0, description="ui_tars: of sampling (DART: 1).")
    max_images: Positive = Field(1, description="vlm: screenshots in a prompt, the present one included (DART: 5).")
    images_after_cut: Positive | None = Field(
        None,
        description="vlm: screenshots that stay when a prompt would have more than max_images: a prefix cache then "
        "serves the turns in between; none: only the oldest goes, at every turn (DART).",
    )
    max_texts: int = Field(0, ge=0, description="vlm: earlier replies in a prompt (DART: 35).")
    warm_start_steps: int = Field(0, ge=0, description="vlm: supervised steps on the oracle's actions before the run.")


class SyncConfig(Section):
    """How workers come to new weights."""

    mode: Literal["drain", "keep", "restart"] = Field(
        "drain", description="What happens to requests that run on a worker whose weights change."
    )
    workers_at_a_time: Positive | Literal["all"] = Field(1, description="Slice of a rolling change, or all at once.")
    cache: Literal["kept", "lost"] = Field(
        "kept",
        description="keep: whether running requests keep their keys and values, or are aborted and asked again with "
        "what they had said (AReaL, verl; simulated workers only).",
    )
    resume_seconds: Seconds = Field(0.0, description="cache lost: until clients ask again (AReaL: .5, verl: 1).")


class RoutingConfig(Section):
    """Which worker answers a request."""

    rule: Literal["least_in_flight", "session_affine", "in_turn", "group_in_turn"] = Field(
        "least_in_flight",
        description="DART's rule is the first; in_turn: sessions one after the other, and sticky (AReaL); "
        "group_in_turn: all of a group's sessions on one worker (prime-rl).",
    )
    max_excess: int = Field(4, ge=0, description="session_affine: live requests above the least loaded worker's.")


class LimitsConfig(Section):
    """Longest time of each kind of call."""

    start_seconds: Deadline = Field(600.0, description="One start of a desktop.")
    setup_seconds: Deadline = Field(600.0, description="Setting a task up.")
    request_seconds: Deadline = Field(1800.0, description="One reply, waiting for a stopped pool included.")
    step_seconds: Deadline = Field(180.0, description="One action.")
    evaluate_seconds: Deadline = Field(600.0, description="One score.")
    load_seconds: Deadline = Field(1200.0, description="One weight load of a worker (DART: 100-300 s).")
    close_seconds: Deadline = Field(120.0, description="One tear-down.")
    lease_seconds: Deadline = Field(14400.0, description="A whole attempt on its desktop.")


class RolloutConfig(Section):
    """Desktops, and how attempts are played."""

    num_envs: Positive = Field(38, description="Desktop slots (DART headline run).")
    warm_envs: int = Field(
        0, ge=0, description="Spare desktops booted ahead, which a slot's next attempt takes without waiting."
    )
    num_workers: Positive = Field(4, description="Inference workers, one GPU each (DART headline run).")
    unit: Literal["rollout", "task", "batch"] = Field(
        "rollout", description="What has to end before its slots get new work."
    )
    lock_step: bool = Field(False, description="Whether all live attempts take their turns together.")
    max_turns: Positive = Field(30, description="Most turns of an attempt (DART headline run).")
    start_tries: Positive = Field(3, description="Starts of a desktop before its attempt is given up.")
    start_backoff_seconds: Seconds = Field(5.0, description="Wait after a failed start, doubled each time.")
    request_tries: Positive = Field(10, description="Workers a request is tried on (DART released: 10).")
    sync: SyncConfig = Field(default_factory=SyncConfig, description="Weight changes.")
    routing: RoutingConfig = Field(default_factory=RoutingConfig, description="Choice of worker.")
    limits: LimitsConfig = Field(default_factory=LimitsConfig, description="Deadlines.")

    @property
    def num_desktops(self) -> int:
        """Desktops that are provisioned: one a slot, and the spares."""
        return self.num_envs + self.warm_envs


class AttemptsConfig(Section):
    """How many attempts a task gets."""

    rule: Literal["fixed", "by_success"] = Field("fixed", description="Always ``most``, or fewer for easy tasks.")
    most: Positive = Field(8, description="Attempts of a task (DART: 8).")
    least: Positive = Field(2, description="by_success: fewest attempts.")
    threshold: Share = Field(0.6, description="by_success: success rate from which attempts are lowered.")
    max_replacements: int = Field(2, ge=0, description="Masked attempts of a group that are tried again.")
    further: int = Field(
        0, ge=0, description="Most added to a group in which all failed, on slots that would wait for admission."
    )


class GroupsConfig(Section):
    """Which complete groups may be trained on."""

    min_size: Positive = Field(2, description="Fewest unmasked attempts.")
    drop_all_failed: bool = Field(True, description="Drop groups in which all failed.")
    drop_solved: bool = Field(True, description="Drop groups whose mean reward reaches max_mean_reward.")
    max_mean_reward: Share = Field(1.0, description="Where a group counts as solved (DART released: acc_max 1.0).")
    drop_equal: bool = Field(True, description="Drop groups of equal rewards strictly between 0 and 1.")


class BatchConfig(Section):
    """What an update trains on."""

    min_groups: Positive = Field(6, description="Groups to wait for (DART released: 6).")
    max_groups: Positive = Field(8, description="Groups taken at most (DART released: 8).")
    order: Literal["ready", "started", "weights", "in_order"] = Field(
        "ready",
        description="Taken first: what became ready first, began first, has the oldest weights, or began first with "
        "the batch waiting for it.",
    )
    wait_age: Positive | None = Field(
        None, description="No batch while a running group began so many versions ago (verl's dropless buffer)."
    )


class AdmissionConfig(Section):
    """Bounds on groups, in batches of curation.batch.max_groups; none: no bound."""

    ahead_batches: float | None = Field(
        None, gt=0.0, description="Begun and in no published weights (AReaL: eta + 1; verl: (1 + theta) T)."
    )
    open_batches: float | None = Field(None, gt=0.0, description="Whose attempts run (AReaL: 1; SkyRL: 3).")
    ready_batches: float | None = Field(None, gt=0.0, description="Complete, and waiting (prime-rl: 1).")
    waiting_batches: float | None = Field(None, gt=0.0, description="Begun and taken by no update (slime: 1).")


class StalenessConfig(Section):
    """How old a trajectory may be when it is trained on."""

    bound: int | None = Field(1, ge=0, description="Versions; DART: the newest two checkpoints, so 1.")
    measured_by: Literal["oldest", "newest", "start"] = Field(
        "oldest",
        description="Which version of a trajectory counts: of its oldest or newest turn, or the one published when it "
        "was admitted.",
    )
    cancel_running: bool = Field(
        False, description="start: end attempts whose group is certain to be too old (prime-rl)."
    )
    requeue: bool = Field(False, description="Offer the task of a group that got stale again, before others (tinker).")


class TurnLimitConfig(Section):
    """How many turns an attempt may take; rollout.max_turns is the most."""

    rule: Literal["fixed", "by_success"] = Field(
        "fixed", description="The same for all, or the task's longest success so far (DART's paper)."
    )
    least: Positive = Field(1, description="by_success: fewest turns.")
    slack: int = Field(0, ge=0, description="by_success: turns beyond the longest success.")


class PoolConfig(Section):
    """Stored successes, for groups in which all failed."""

    enabled: bool = Field(False, description="Whether such a group gets one success of its task.")
    online: bool = Field(True, description="Whether the run's own successes are stored.")
    file: str | None = Field(None, description="Folder of successes to begin with, as `dartsim collect` writes it.")
    collected_per_task: int = Field(
        0, ge=0, description="Successes of the oracle stored for each task before the run (mock tasks)."
    )
    keep_per_task: int = Field(
        1, ge=0, description="Own successes of each task kept in the run's folder, for `dartsim collect --run`."
    )
    max_per_task: Positive = Field(8, description="Stored successes of a task, newest kept.")
    choice: Literal["least_used", "newest"] = Field(
        "least_used", description="Which one is used (DART released: newest)."
    )


class SelectionConfig(Section):
    """Which turns of a group are trained on."""

    rule: Literal["all", "high_entropy"] = Field("all", description="All (DART released), or the paper's selection.")
    share: float = Field(0.8, gt=0.0, le=1.0, description="high_entropy: share of a group's turns that is kept.")
    keep_stored: bool = Field(False, description="high_entropy: keep stored successes whole (DART: no).")


class TaskFilterConfig(Section):
    """Tasks that are left out while they teach nothing; at 1 and 0 none is."""

    max_mean: Share = Field(1.0, description="Mean reward above which a task is too easy.")
    min_mean: Share = Field(0.0, description="Mean reward below which a task is too hard.")
    window: Positive = Field(16, description="Newest rewards of a task that count.")
    revisit_after: Positive | None = Field(4, description="Skips after which a task is offered again; none: never.")


class CurationConfig(Section):
    """What is admitted and what is trained on."""

    success_reward: Share = Field(1.0, description="Reward from which an attempt is a success (pool, turn limit).")
    turn_limit: TurnLimitConfig = Field(default_factory=TurnLimitConfig, description="Trajectory length.")
    pool: PoolConfig = Field(default_factory=PoolConfig, description="Stored successes.")
    selection: SelectionConfig = Field(default_factory=SelectionConfig, description="Turns trained on.")
    task_filter: TaskFilterConfig = Field(default_factory=TaskFilterConfig, description="Tasks left out.")
    attempts: AttemptsConfig = Field(default_factory=AttemptsConfig, description="Attempts of a task.")
    groups: GroupsConfig = Field(default_factory=GroupsConfig, description="Group filter.")
    batch: BatchConfig = Field(default_factory=BatchConfig, description="Batch rule.")
    staleness: StalenessConfig = Field(default_factory=StalenessConfig, description="Staleness bound.")
    admission: AdmissionConfig = Field(default_factory=AdmissionConfig, description="Bounds on groups.")
    max_ahead: Positive | None = Field(
        None,
        description="Most attempts admitted and not yet in published weights; none admits always (DART).",
    )
    store: str = Field(
        "sqlite",
        description="Where the run is kept: sqlite (a file in its folder), postgresql://USER@HOST/NAME (password: "
        "PGPASSWORD), or memory, which cannot be resumed.",
    )


class StorageConfig(Section):
    """What a store that outlives the run keeps; see docs/storage.md."""

    durability: Literal["auto", "each", "batched"] = Field(
        "auto",
        description="When it is written: after each attempt and through to the disk, or at the latest with each batch; "
        "auto: each where desktops are booted, batched where they are computed.",
    )
    keep: Literal["all", "live", "none"] = Field(
        "live", description="Whose turns are kept: all, those of trajectories that may still be trained, or none."
    )
    screenshots: bool = Field(True, description="Whether screenshots and accessibility trees are kept with turns.")
    max_disk_gib: float | None = Field(
        None, gt=0.0, description="Most that turns and screenshots may take, GiB; what ended first makes room."
    )
    checkpoint_every_updates: Positive | None = Field(
        1,
        description="Updates between checkpoints of a model; a crash costs the updates since the last. none: never.",
    )
    keep_checkpoints: Positive = Field(2, description="Newest checkpoints kept.")


class AdvantageConfig(Section):
    """Group statistics of the advantage."""

    level: Literal["turn", "trajectory"] = Field("turn", description="What is one sample (DART: a turn).")
    spread: Literal["biased", "unbiased", "none"] = Field(
        "biased", description="Standard deviation (DART released: unbiased)."
    )
    epsilon: float = Field(0.0, ge=0.0, description="Added to it (DART released: 1e-6).")
    lone_sample: Literal["zero", "reward"] = Field(
        "zero", description="Advantage of a group's only sample (DART released: reward)."
    )
    leave_one_out: bool = Field(False, description="Compare with the group's other attempts only.")


class ObjectiveConfig(Section):
    """What is maximized; defaults are those of DART's paper."""

    ratio: Literal["token", "sequence"] = Field("token", description="sequence: GSPO (DART released).")
    clip_low: Share = Field(0.2, description="Lower clip (DART released: .1).")
    clip_high: float = Field(0.28, ge=0.0, description="Upper clip.")
    dual_clip: float | None = Field(None, gt=1.0, description="Bound for negative advantages (DART released PPO: 10).")
    kl_coefficient: float = Field(0.1, ge=0.0, description="Weight of the divergence from the first weights.")
    importance: Literal["off", "token", "sequence"] = Field("token", description="Truncated importance sampling.")
    importance_cap: float = Field(1.0, gt=0.0, description="Largest importance weight.")
    missing: Literal["mask", "one"] = Field("mask", description="Turns without log-probabilities (DART released: one).")
    aggregation: Literal["token", "turn", "trajectory", "group"] = Field("turn", description="What is averaged.")
    count_unselected: bool = Field(True, description="Whether unselected turns count in the average.")
    mask_covers_kl: bool = Field(True, description="Whether selection takes the divergence away too.")
    entropy_coefficient: float = Field(0.0, description="Weight of the entropy bonus (DART: 0).")
    log_ratio_limit: float = Field(20.0, gt=0.0, description="Clamp of log ratios, nats.")
    advantage: AdvantageConfig = Field(default_factory=AdvantageConfig, description="Group statistics.")


class OptimizerConfig(Section):
    """How weights follow the gradient."""

    learning_rate: float = Field(1e-6, gt=0.0, description="Of AdamW (DART: 1e-6; a tiny model wants 1e-3).")
    warmup_updates: int = Field(0, ge=0, description="Updates over which it rises from 0.")
    weight_decay: float = Field(0.0, ge=0.0, description="Of AdamW, on matrices.")
    max_grad_norm: float = Field(1.0, gt=0.0, description="Longer gradients are shortened (DART's code: 2).")
    minibatches: Positive = Field(1, description="Gradient steps on a batch.")
    max_tokens: Positive = Field(8192, description="Padded tokens of a micro-batch.")


class LoraConfig(Section):
    """Low-rank additions in place of the weights."""

    rank: Positive | None = Field(None, description="Of each addition; none: all weights are trained.")
    alpha: Positive = Field(16, description="Additions are scaled by alpha / rank.")


class EvaluationConfig(Section):
    """Evaluation on held-out tasks."""

    every_updates: Positive | None = Field(None, description="Updates between evaluations; none: first and last only.")
    attempts_per_task: Positive = Field(1, description="Attempts at each held-out task.")


class PromotionConfig(Section):
    """Promotion of better weights on held-out tasks, and the way back from worse ones."""

    enabled: bool = Field(False, description="Whether new weights are judged against the promoted ones.")
    every_updates: Positive = Field(20, description="Updates between judgements.")
    attempts_per_task: Positive = Field(2, description="Attempts of each of the two at each held-out task.")
    confidence: float = Field(0.95, gt=0.5, lt=1.0, description="Of each bound of the gain, one-sided.")
    min_gain: float = Field(0.0, description="Promoted if the lower bound of the gain is above it.")
    max_loss: Annotated[float, Field(ge=0.0)] | None = Field(
        0.0, description="Rolled back if the upper bound of the gain is below minus this; none: never."
    )
    min_tasks: Positive = Field(8, description="Fewer held-out tasks decide nothing.")
    resamples: int = Field(4_000, ge=100, description="Of the bootstrap over tasks.")


class FsdpConfig(Section):
    """The learner of several processes (torch FSDP2)."""

    ranks: Positive = Field(2, description="Processes, one GPU each where there are some.")
    nodes: Positive = Field(1, description="Machines, with equally many of them each; the run is on the first.")
    address: str | None = Field(None, description="HOST:PORT of the first machine, where ranks of several nodes meet.")
    interface: str | None = Field(
        None, description="Network interface between nodes; none: the one that the machine's name resolves to."
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: GPUs if there is one for each rank.")
    gpus: list[int] = Field(default_factory=list, description="GPUs of a node's ranks, in order; none: the first ones.")
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="Of what is computed; weights and optimizer state keep the model's own."
    )
    checkpointing: bool = Field(False, description="Compute activations again instead of keeping them.")
    checkpoint_every_updates: Positive = Field(
        1, description="Updates between checkpoints; a rank that dies costs the updates since the last one."
    )
    keep_weights: Positive = Field(4, description="Newest exported weights kept on disk for workers.")
    folder: str | None = Field(
        None, description="Where batches, checkpoints and weights are kept; none: a temporary folder."
    )
    start_seconds: Deadline = Field(600.0, description="Time until all ranks must be up.")
    update_seconds: Deadline = Field(7200.0, description="Longest time of an update.")


class TrainerConfig(Section):
    """The training loop."""

    objective: ObjectiveConfig = Field(default_factory=ObjectiveConfig, description="What is maximized.")
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig, description="How weights are updated.")
    lora: LoraConfig = Field(default_factory=LoraConfig, description="Low-rank additions.")
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig, description="Held-out tasks.")
    promotion: PromotionConfig = Field(default_factory=PromotionConfig, description="Promotion and roll-back.")
    fsdp: FsdpConfig = Field(default_factory=FsdpConfig, description="Learner of several processes.")
    mismatch_bound: float | None = Field(
        None,
        gt=0.0,
        description="Mean difference of log-probabilities, worker to learner at equal weights, that is an alarm, nats.",
    )

    wait_for_sync: bool = Field(False, description="Whether training waits until all workers have new weights.")
    publish_every: Positive = Field(1, description="Updates between two publications (verl: T; slime: its interval).")
    publish_wait: Literal["nothing", "running", "batch"] = Field(
        "nothing",
        description="What new weights wait for: nothing; the groups that run, while none begins (NeMo-RL, OpenRLHF); "
        "or the whole next batch (slime's one-step-off).",
    )
    retry_seconds: Seconds = Field(10.0, description="Wait after a failed update, doubled each time.")
    retry_longest_seconds: Seconds = Field(600.0, description="Longest such wait.")
    max_failures: Positive | None = Field(None, description="Failures in a row that end the run; none: never.")


class HostsConfig(Section):
    """The machines that desktops run on."""

    count: Positive = Field(4, description="Machines.")
    cores: float = Field(32.0, gt=0, description="Cores of each.")
    slow_count: int = Field(0, ge=0, description="How many of them have slow_cores cores only.")
    slow_cores: float = Field(1.0, gt=0, description="Cores of each of those.")
    memory_gib: float = Field(128.0, gt=0, description="Memory of each, GiB.")
    concurrent_starts: Positive = Field(4, description="Desktops that one machine boots at a time.")


class EngineConfig(Section):
    """The inference engine of each worker."""

    model: Literal["fluid", "batch", "shared"] = Field(
        "fluid",
        description="Continuous batching on a GPU; or, as `dartsim measure` fits them: all that waits as one batch (a "
        "worker in this process), all at once and slower by their number (a server).",
    )
    batch_seconds: Seconds = Field(0.01, description="batch, shared: of a batch, whatever its size.")
    request_seconds: Seconds = Field(0.002, description="batch, shared: of each request in it.")
    batch_spread: dict[str, Any] | float = Field(
        1.0, description="batch, shared: factor of a batch's (a request's) time, a distribution of mean 1."
    )
    batch_memory: float = Field(
        0.0, ge=0.0, lt=1.0, description="batch, shared: how alike successive factors are, if they are quantiles."
    )
    max_batch: Positive = Field(64, description="batch: most requests of a batch.")
    control_seconds: Seconds = Field(
        0.0, description="Of the one process around desktops and pool, a request; all of them share its core."
    )
    gpu: str = Field("h100_fp8", description="GPU profile (DART: quantised H100); see `dartsim profiles`.")
    window: Literal["slide", "block"] = Field("slide", description="How history images are dropped (DART: slide).")
    prefix_cache: bool = Field(True, description="Whether a session's prompt prefix is cached on its last worker.")
    overhead_seconds: Seconds = Field(1.5, description="Hops, base64, image preprocessing a request (range 1-3).")
    prepare_seconds: Seconds = Field(
        0.0, description="Of a weight change before reload_seconds: requests inside go on, and no new ones come."
    )
    reload_seconds: Seconds = Field(300.0, description="Weight change of one slice, from disk (range 100-300).")
    transfer_seconds: Seconds | None = Field(
        None, description="Weight change of one slice without a restart (modes drain, keep); none: reload_seconds."
    )
    prompt: Literal["gui", "text"] = Field(
        "gui", description="Prompts: screenshots and replies of the turns before, or one short text."
    )
    reply_tokens: dict[str, Any] | float | None = Field(
        None, description="Length of a reply, tokens: a distribution or a number; none: DART's measured replies."
    )
    longest_reply_tokens: Positive = Field(28_672, description="Longest reply where reply_tokens is given.")


class EnvConfig(Section):
    """The latencies of desktops."""

    profile: str = Field("dart", description="Named latency profile; see `dartsim profiles`.")
    latency: dict[str, Any] = Field(
        default_factory=dict,
        description="Replaced latencies: start, boot, setup, step, evaluate, teardown = seconds or a distribution.",
    )


class LearnerConfig(Section):
    """The trainer's speed."""

    fixed_seconds: Seconds = Field(270.0, description="Of an update, with saving (update range 900-1,300 s).")
    turn_seconds: Seconds = Field(1.1, description="Of a turn trained on (from 21.2 min a version).")
    gpus: Positive = Field(
        8, description="GPUs behind these times (DART: 8 H100); only costs and `dartsim plan` count them."
    )


class FaultKindConfig(Section):
    """Another rate or length of one kind of fault than its profile's."""

    share: Share | None = Field(None, description="Of the calls that it can strike; none: the profile's.")
    per_hour: float | None = Field(
        None, ge=0.0, description="Of each part that it can strike (`dartsim faults` says which); none: the profile's."
    )
    lasts_seconds: dict[str, Any] | Seconds | None = Field(
        None, description="How long it lasts: seconds or a distribution; none: the kind's own."
    )


class StrikeConfig(Section):
    """One fault at a set time, in addition to those that are drawn."""

    kind: str = Field(description="Which; see `dartsim faults`.")
    at_seconds: Seconds = Field(description="When: the next calls after it, or the moment in which it begins.")
    lasts_seconds: Seconds | None = Field(None, description="How long it lasts; none: drawn.")
    target: int = Field(0, ge=0, description="Which desktop, host, worker or pair of parts, modulo their number.")
    times: Positive = Field(1, description="Calls that it strikes, if it strikes calls.")


class FaultsConfig(Section):
    """Faults of the modelled cluster; none by default, as in the calibration."""

    profile: Literal["none", "calm", "osworld", "hostile"] = Field(
        "none", description="Named rates of all kinds of faults; see `dartsim faults`."
    )
    scale: float = Field(1.0, ge=0.0, description="What the profile's rates are multiplied with.")
    heal_after_hours: float | None = Field(
        None, ge=0.0, description="When nothing strikes any more and what lasts ends; none: never."
    )
    kinds: dict[str, FaultKindConfig] = Field(
        default_factory=dict, description="Other rates of single kinds, a table each by name."
    )
    schedule: list[StrikeConfig] = Field(default_factory=list, description="Single faults at set times.")
    start_failure_share: Share = Field(0.0, description="Starts of a desktop that fail.")
    step_failure_share: Share = Field(0.0, description="Actions on which the desktop breaks.")
    score_failure_share: Share = Field(0.0, description="Scores that the evaluator cannot give.")
    load_failure_share: Share = Field(0.0, description="Weight loads that fail.")
    update_failure_share: Share = Field(0.0, description="Updates that fail half-way.")
    outage_every_hours: float | None = Field(None, gt=0, description="Mean time between trainer outages.")
    outage_hours: float = Field(1.0, gt=0, description="Length of an outage (DART history: 1.7 to 4.3 h).")


class ClusterConfig(Section):
    """The modelled cluster."""

    gpu_memory_gib: float = Field(79.6, gt=0, description="Memory of one GPU, GiB, in --dry-run (an H100: 79.6).")
    hosts: HostsConfig = Field(default_factory=HostsConfig, description="Machines for desktops.")
    env: EnvConfig = Field(default_factory=EnvConfig, description="Desktop latencies.")
    engine: EngineConfig = Field(default_factory=EngineConfig, description="Inference engines.")
    learner: LearnerConfig = Field(default_factory=LearnerConfig, description="Trainer.")
    faults: FaultsConfig = Field(default_factory=FaultsConfig, description="Faults.")


class BackendConfig(Section):
    """Which parts exist, and which are modelled."""

    desktops: Literal["sim", "mock", "desktop", "osworld"] = Field(
        "sim",
        description="Modelled; the mock desktop as fast as it is; containers of our desktop image; OSWorld's image.",
    )
    workers: Literal["sim", "local", "vllm"] = Field(
        "sim", description="Modelled; the model in threads of this process; vLLM servers."
    )
    learner: Literal["sim", "local", "fsdp"] = Field(
        "sim", description="With modelled time; as fast as it is, in this process; or in several (trainer.fsdp)."
    )
    real_time: bool = Field(False, description="By the machine's clock, although every part is modelled.")

    @property
    def virtual(self) -> bool:
        """Whether the run's time is virtual: nothing in it takes real time."""
        return not self.real_time and {self.desktops, self.workers, self.learner} == {"sim"}

    @property
    def boots(self) -> bool:
        """Whether desktops are booted, so that an attempt costs minutes rather than milliseconds."""
        return self.desktops in ("desktop", "osworld")


class VllmConfig(Section):
    """vLLM engines, one a worker."""

    python: str | None = Field(
        None, description="Interpreter of the environment that has vLLM; none: DARTSIM_VLLM_PYTHON."
    )
    addresses: list[str] = Field(
        default_factory=list, description="URLs of engines that run already; none: they are started."
    )
    device: Literal["cpu", "cuda"] = Field("cpu", description="What engines compute on.")
    gpus: list[int] = Field(default_factory=list, description="GPUs that engines are put on, in order.")
    tensor_parallel: Positive = Field(1, description="GPUs that one engine is spread over.")
    gpu_memory_share: float = Field(
        0.9, gt=0.0, le=1.0, description="Share of a GPU's memory that an engine takes; less beside a learner."
    )
    dtype: str = Field("float32", description="Of the weights in the engine; the learner's, for equal probabilities.")
    transfer: Literal["folder", "file"] = Field(
        "file", description="How weights get in: reloaded from a folder, or through vLLM's weight-transfer routes."
    )
    max_model_len: Positive = Field(2048, description="Longest prompt and reply together, tokens.")
    max_num_seqs: Positive = Field(16, description="Requests computed at once.")
    threads: Positive = Field(1, description="OpenMP threads of an engine on CPU.")
    start_seconds: Deadline = Field(600.0, description="Time until an engine must be healthy.")
    concurrent_starts: Positive = Field(4, description="Engines that are started at a time; the others wait.")
    request_seconds: Deadline = Field(300.0, description="Longest time of one request.")


class DesktopHostConfig(Section):
    """One Docker engine that desktops run on."""

    url: str | None = Field(
        None, description="unix://, tcp:// or ssh:// address of its engine; none: DOCKER_HOST or the local one."
    )
    address: str | None = Field(
        None, description="Where its published ports are reached; none: by the url, or loopback."
    )
    bind: str = Field(
        "127.0.0.1",
        description="Address of the host that ports are published on; beyond loopback our desktops want a token.",
    )
    without_token: bool = Field(
        False, description="osworld: accept that whoever reaches bind may use the desktops; their server has no token."
    )
    max_desktops: Positive = Field(64, description="Most desktops on it, spares included.")


class DesktopConfig(Section):
    """Real desktops in containers."""

    variant: Literal["skeleton", "full"] = Field(
        "skeleton", description="desktop: which of our images; see `dartsim desktop build`."
    )
    office: bool = Field(False, description="desktop: the image with LibreOffice Calc.")
    image: str | None = Field(None, description="Another image of the same interface; none: the variant's.")
    hosts: dict[str, DesktopHostConfig] = Field(
        default_factory=dict, description="Docker engines by name, a table each; none: the local one."
    )
    width: int = Field(1920, ge=96, description="Of its screen, pixels.")
    height: int = Field(1080, ge=96, description="Of its screen, pixels.")
    memory_mib: Positive = Field(1024, description="Memory limit of a container (OSWorld's VM: 4 GiB and more).")
    cpus: float = Field(2.0, gt=0.0, description="Cores a container may use.")
    pids: Positive = Field(512, description="Processes a container may have.")
    shm_mib: Positive = Field(64, description="Shared memory of a container.")
    concurrent_starts: Positive = Field(2, description="Containers that one engine starts at a time.")
    action_pause_seconds: Seconds = Field(
        0.0, description="desktop: pyautogui's pause after each of its calls (its own default: 0.1)."
    )
    settle: Literal["stable"] | Seconds = Field(
        "stable", description="After an action: until two frames are equal, or so many seconds (OSWorld: 2)."
    )
    settle_most_seconds: Seconds = Field(2.0, description="Longest wait for two equal frames.")
    download_hosts: list[str] = Field(
        default_factory=list,
        description="Hosts of task files' URLs that may be private; all others must be of the public internet.",
    )
    evaluator: Literal["builtin", "desktop-env"] = Field(
        "builtin", description="Metrics: our own, or OSWorld's in their own environment (`dartsim evaluator`)."
    )
    disk: str | None = Field(None, description="osworld: the virtual machine's disk, Ubuntu.qcow2.")
    kvm: Literal["auto", "on", "off"] = Field("auto", description="osworld: hardware acceleration.")


class AlarmsConfig(Section):
    """When a run is said to suffer; see docs/alarms.md."""

    starved_times: float = Field(
        5.0, ge=1.0, description="trainer_starved: times the median between updates that a batch may take."
    )
    starved_seconds: Seconds = Field(3600.0, description="trainer_starved: but so long at least.")
    no_trajectory_seconds: Deadline = Field(7200.0, description="no_trajectory: longest time without an ended attempt.")
    worker_down_seconds: Deadline = Field(1800.0, description="worker_down: longest time a worker may not serve.")
    window_seconds: Deadline = Field(7200.0, description="stale_drops, desktops_failing: what is looked back on.")
    stale_share: Share = Field(
        0.8, description="stale_drops: share of stale ones among trained and stale (measured, preset dart: 0.58)."
    )
    dropped_batches: float = Field(
        4.0, gt=0.0, description="nothing_to_train: attempts dropped since the last batch, in smallest batches."
    )
    dropped_share: Share = Field(0.95, description="nothing_to_train: their share of the attempts that ended.")
    disk_free_gib: float = Field(0.5, ge=0.0, description="disk_near_full: least that the run's disk has free.")
    disk_share: Share = Field(0.95, description="disk_near_full: share of the store's quota in use.")
    failing_share: Share = Field(0.3, description="desktops_failing: share of starts and attempts that fail.")
    failing_least: Positive = Field(20, description="desktops_failing: fewest starts and attempts to judge by.")


class RayPart(Section):
    """What each actor of a kind asks of the Ray cluster."""

    place: bool = Field(True, description="Whether this part, where it is real, is placed on the cluster.")
    cpus: float = Field(1.0, ge=0.0, description="CPUs, as Ray counts them.")
    gpus: float = Field(0.0, ge=0.0, description="GPUs.")
    memory_gib: float | None = Field(None, gt=0.0, description="Memory, GiB; none reserves none.")
    resources: dict[str, float] = Field(
        default_factory=dict, description="The cluster's own resources (`ray start --resources`), by name."
    )
    restarts: int = Field(-1, ge=-1, description="How often Ray starts it again; -1: without end.")


class RayDesktopsConfig(RayPart):
    """Hosts of desktops: each drives those of the node it is placed on."""

    hosts: Positive = Field(1, description="How many, spread over nodes.")


class RayEnginesConfig(RayPart):
    """Inference engines, an actor each."""

    listen: Literal["loopback", "node"] = Field(
        "loopback", description="Where vLLM servers listen: node is needed as soon as there is another machine."
    )


class RayLearnerConfig(RayPart):
    """The learner, with all of its ranks in one place."""

    checkpoint_every_updates: Positive = Field(
        1, description="Updates between checkpoints; its actor's end costs the updates since the last one."
    )


class RayConfig(Section):
    """Real parts on a Ray cluster."""

    address: str | None = Field(
        None,
        description="HOST:PORT of the cluster's head, ray://HOST:PORT, auto, or local (a Ray of our own); none: "
        "everything on this machine, without Ray.",
    )
    folder: str | None = Field(
        None, description="Folder on a disk that all nodes share, for weights and checkpoints; none: a temporary one."
    )
    ready_seconds: Deadline = Field(120.0, description="Time until an actor must be placed.")
    desktops: RayDesktopsConfig = Field(default_factory=RayDesktopsConfig, description="Hosts of desktops.")
    engines: RayEnginesConfig = Field(default_factory=RayEnginesConfig, description="Inference engines.")
    learner: RayLearnerConfig = Field(default_factory=RayLearnerConfig, description="The learner.")


class TraceConfig(Section):
    """What is kept of the measurements."""

    max_segments: int = Field(60_000, ge=0, description="Newest state segments kept per population for timelines.")
    max_requests: int = Field(
        20_000, ge=0, description="Newest requests kept for the flows of the Perfetto trace, turn to update."
    )
    max_snapshots: int = Field(400, ge=10, description="Points of the figures over time.")


class Config(Section):
    """A whole run."""

    preset: str = Field("dart", description="Name of the preset it started from.")
    workload: str | None = Field(
        None, description="Name of the workload that was laid over it; none: the preset's own."
    )
    run: RunConfig = Field(default_factory=RunConfig, description="Length and seed.")
    tasks: TasksConfig = Field(default_factory=TasksConfig, description="Task list.")
    policy: PolicyConfig = Field(default_factory=PolicyConfig, description="What workers say.")
    surrogate: SurrogateConfig = Field(default_factory=SurrogateConfig, description="Drawn outcomes.")
    rollout: RolloutConfig = Field(default_factory=RolloutConfig, description="Rollout.")
    curation: CurationConfig = Field(default_factory=CurationConfig, description="Curation.")
    storage: StorageConfig = Field(default_factory=StorageConfig, description="What outlives the run.")
    trainer: TrainerConfig = Field(default_factory=TrainerConfig, description="Trainer.")
    cluster: ClusterConfig = Field(default_factory=ClusterConfig, description="Modelled cluster.")
    backend: BackendConfig = Field(default_factory=BackendConfig, description="What is real.")
    vllm: VllmConfig = Field(default_factory=VllmConfig, description="vLLM engines.")
    desktop: DesktopConfig = Field(default_factory=DesktopConfig, description="Real desktops.")
    ray: RayConfig = Field(default_factory=RayConfig, description="Real parts on a Ray cluster.")
    trace: TraceConfig = Field(default_factory=TraceConfig, description="Measurements.")
    alarms: AlarmsConfig = Field(default_factory=AlarmsConfig, description="Alarms.")
