"""Desktops that speak OSWorld's protocol: the client of the server inside them, and everything built on it.

The client, from below: ``errors``, ``png`` (whether a screenshot is whole), ``frames`` (screenshots as pictures),
``transport`` (one request at a time, each with a time-out), ``replies``, ``client`` (the routes), ``ready`` (when a
screen is ready or has settled), ``recycle`` (restarts the server). Tasks: ``steps`` (set-up), ``getters``, ``scorer``
(metrics run in the sandboxes of ``real.scoring``), ``coverage``, and their helpers. Desktops:
``pyautogui_code`` (actions as code), ``settings``, ``desktop`` (the asynchronous desktop of the control plane),
``connect`` (one that runs), ``provider`` (many, in containers), ``env`` (the gymnasium environment).
"""
