"""The names, for type checkers and for ``lazy_loader``, so that a table of alarms or states costs no recorder."""

from .alarm import Alarm as Alarm
from .recorder import Instrument as Instrument
from .recorder import Listener as Listener
from .recorder import Recorder as Recorder
from .recorder import ticker as ticker
from .records import HELD_OUT as HELD_OUT
from .records import Population as Population
from .records import Segment as Segment
from .records import Snapshot as Snapshot
from .records import Track as Track
from .records import UpdateRecord as UpdateRecord
from .states import DesktopState as DesktopState
from .states import EngineState as EngineState
from .states import PhaseState as PhaseState
from .states import TrainerState as TrainerState
from .status import ComponentStatus as ComponentStatus
from .status import StatusSource as StatusSource
