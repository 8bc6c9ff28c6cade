"""Action grammars: four ways to write the same mouse and keyboard actions, each with a parser and a formatter.

``model`` has the actions; ``pyautogui``, ``computer_13``, ``ui_tars`` and ``compact`` the grammars, of which
``make_grammar`` makes one by its name. Coordinates of an action are always whole pixels of the screen, from
the upper left corner; what a grammar writes instead (shares of 1000, pixels of a resized picture, cells of a
grid) is its own business, and is documented there.
"""

from dartsim.envs.actions.grammar import ActionGrammar, Inexpressible, MalformedAction
from dartsim.envs.actions.grammars import GRAMMARS, make_grammar
from dartsim.envs.actions.model import (
    Action,
    Click,
    Done,
    Down,
    Drag,
    Fail,
    Hotkey,
    KeyDown,
    KeyUp,
    Move,
    Press,
    Scroll,
    TypeText,
    Up,
    Wait,
)

__all__ = [
    "GRAMMARS",
    "Action",
    "ActionGrammar",
    "Click",
    "Done",
    "Down",
    "Drag",
    "Fail",
    "Hotkey",
    "Inexpressible",
    "KeyDown",
    "KeyUp",
    "MalformedAction",
    "Move",
    "Press",
    "Scroll",
    "TypeText",
    "Up",
    "Wait",
    "make_grammar",
]
