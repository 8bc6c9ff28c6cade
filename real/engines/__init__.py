"""Inference engines: vLLM servers behind the port ``PolicyWorker``, reached over HTTP.

    options, launcher           how engines are started, as processes or by attaching
    client                      the HTTP routes we use, with their errors
    request_codec               requests to tokens and screenshots, answers to replies
    weights, ledger             how weights reach an engine, and how their arrival is confirmed
    engine_weights, supervisor  an engine and its weights; its states and restarts
    in_flight                   requests under way
    worker, backend             all of it behind the port; the configured pool

This module imports nothing, because only requests, not the start of engines, need torch.
"""
