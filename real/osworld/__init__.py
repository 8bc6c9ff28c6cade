"""Desktops that speak OSWorld's protocol: the client of the server inside them, and what stands on it.

The client, from below: ``errors``, ``png`` (whether a screenshot is whole), ``frames`` (screenshots as pictures),
``transport`` (one request at a time, each with a time-out), ``replies``, ``client`` (the routes), ``ready`` (when a
screen is ready or has settled), ``recycle`` (restarts the server). Tasks: ``steps`` (set-up), ``getters``, ``metrics``,
``scorer``, and their helpers. Desktops: ``hands`` (actions as code), ``settings``, ``episode``, ``desktop`` (the
asynchronous desktop of the control plane), ``attach`` and ``boot`` (one desktop, running or started), ``provider``
(many), ``env`` (the gymnasium environment).
"""
