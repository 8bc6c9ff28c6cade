"""The public names, for type checkers and for ``lazy_loader``, which imports each when it is first used."""

from .api import (
    Comparison as Comparison,
    Result as Result,
    compare as compare,
    load as load,
    presets as presets,
    simulate as simulate,
)
from .config.schema import Config as Config
from .core.errors import (
    ConfigError as ConfigError,
    DartsimError as DartsimError,
    NothingTrained as NothingTrained,
    PlugInFailed as PlugInFailed,
)
from .core.registry import ComponentSection as ComponentSection, register as register
from .core.ports import EnvProvider as EnvProvider, Learner as Learner, PolicyWorker as PolicyWorker
from .core.sync_modes import SyncMode as SyncMode
from .core.types import (
    Group as Group,
    Observation as Observation,
    Reply as Reply,
    Request as Request,
    Task as Task,
    Trajectory as Trajectory,
    Turn as Turn,
)
from .curation.rules.admission import AdmissionRule as AdmissionRule, GroupCounts as GroupCounts
from .curation.rules.attempts import AttemptsRule as AttemptsRule
from .curation.rules.batches import BatchRule as BatchRule, RunningGroup as RunningGroup
from .curation.rules.selection import TurnSelection as TurnSelection
from .curation.rules.task_order import TaskOrder as TaskOrder
from .curation.rules.turn_limit import TurnLimitRule as TurnLimitRule
from .lab.gate import ConditionResult as ConditionResult, SchedulerRank as SchedulerRank
from .observe.recorder import Instrument as Instrument, Recorder as Recorder
from .observe.records import Snapshot as Snapshot, UpdateRecord as UpdateRecord
from .rollout.lending import LendingRule as LendingRule
from .rollout.routers import Routed as Routed, Router as Router
from .run.backends import (
    BackendContext as BackendContext,
    DesktopBackend as DesktopBackend,
    EngineBackend as EngineBackend,
    LearnerBackend as LearnerBackend,
)
from .run.policies import Policy as Policy
from .testing.rules import check_rule as check_rule
from .sim.faults.kinds import Fault as Fault, FaultKind as FaultKind
from .sim.run_virtual import run_virtual as run_virtual
from .trainer.advantages import AdvantageRule as AdvantageRule
