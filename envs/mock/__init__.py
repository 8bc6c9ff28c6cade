"""The mock desktop: a small deterministic desktop with real state, real pixels, and tasks to learn on.

From the bottom up: ``geometry``, ``widgets``, ``layout`` (the widgets and their places); ``desktop`` (all state);
``perform`` (what actions do); ``font``, ``colors``, ``scene``, ``paint`` (pixels); ``tree``
(accessibility); ``evaluators`` (scores); ``families``, ``suites`` (tasks); ``oracle`` (solves them); ``env`` (the
gymnasium environment).
"""
