"""Effects outside the database whose result is kept, so that a later attempt does not repeat them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ..holding import Holding
from ..models import Effect
from ..payloads import encode_result
from ..states import MAX_EFFECT_KEY, Action
from .fence import fenced


def saved(holding: Holding, key: str) -> tuple[bool, Any]:
    """Return (True, result) of an effect that this job has already had under `key`, else (False, None)."""
    if not key or len(key) > MAX_EFFECT_KEY:
        raise ValueError(f"the key of an effect must have 1 to {MAX_EFFECT_KEY} characters, not {key[:50]!r}")
    effect = Effect.objects.using(holding.using).filter(job_id=holding.lease.job_id, key=key).first()
    return (False, None) if effect is None else (True, effect.result)


def save(holding: Holding, key: str, value: Any) -> Any:
    """Keep the result of an effect, if this lease still owns the job; return it as a later attempt will see it.

    Raises LeaseLost, and leaves a Rejection, if the job has moved on; InvalidPayload for a result that JSON
    cannot hold (the effect has happened, but will be repeated by a retry).
    """
    text = encode_result(value)
    result = None if text is None else json.loads(text)
    with fenced(holding, Action.EFFECT):
        Effect.objects.using(holding.using).create(
            job_id=holding.lease.job_id, key=key, generation=holding.lease.generation, result=result
        )
    return result


def once(holding: Holding, key: str, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Return the saved result of `key`, or call `func` outside any transaction and save what it returns."""
    known, result = saved(holding, key)
    return result if known else save(holding, key, func(*args, **kwargs))
