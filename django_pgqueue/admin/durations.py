"""Durations as people read them."""

from __future__ import annotations

from datetime import timedelta

from django.utils.formats import number_format
from django.utils.translation import gettext as _

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def spoken(duration: timedelta) -> str:
    """Return the length of `duration` in its two largest units: "0.4 s", "40 s", "3 min 20 s", "4 d 3 h"."""
    exact = abs(duration.total_seconds())
    if exact < 10:
        return _("%(seconds)s s") % {"seconds": number_format(round(exact, 1), use_l10n=True)}
    seconds = int(exact)
    if seconds < _MINUTE:
        return _("%(seconds)s s") % {"seconds": seconds}
    if seconds < _HOUR:
        return _("%(minutes)s min %(seconds)s s") % {
            "minutes": seconds // _MINUTE,
            "seconds": seconds % _MINUTE,
        }
    if seconds < _DAY:
        return _("%(hours)s h %(minutes)s min") % {
            "hours": seconds // _HOUR,
            "minutes": seconds % _HOUR // _MINUTE,
        }
    return _("%(days)s d %(hours)s h") % {"days": seconds // _DAY, "hours": seconds % _DAY // _HOUR}
