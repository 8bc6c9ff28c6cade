"""Inference for real: vLLM engines behind the port ``PolicyWorker``, spoken to over HTTP.

    options, launcher   engines as processes, or attached to by address
    starting            a pool's engines, begun beside one another
    client, metrics     the routes that are used, their errors, the load they report
    asking, entropy     requests to tokens and screenshots, answers to content
    weights, ledger     how weights get in, and how it is known that they arrived
    holding, life       an engine with its weights; its states, and who starts it again
    sending, settings   requests on their way, and the patience with them
    worker              all of it behind the port
    plugin, site        what runs inside the engine

Nothing is imported here: what starts engines needs no torch, what asks them does.
"""
