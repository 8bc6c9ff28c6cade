"""Inference for real: vLLM engines behind the port ``PolicyWorker``, spoken to over HTTP.

    options, launcher           engines as processes, or attached to by address; plugin: what runs inside them
    client, metrics             the routes that are used, their errors, the load they report
    request_codec               requests to tokens and screenshots, answers to content
    weights, ledger             how weights get in, and how it is known that they arrived
    engine_weights, supervisor  an engine with its weights; its states, and who starts it again
    in_flight, settings         requests on their way, and the patience with them
    worker                      all of it behind the port; a pool's workers started beside one another

Nothing is imported here: what starts engines needs no torch, what asks them does.
"""
