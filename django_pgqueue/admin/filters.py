"""Filters that ask the table for no distinct values and no counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ..states import as_id

BEFORE = "before"


class WordFilter(admin.SimpleListFilter):
    """A choice among words known without asking the table. Choosing one starts again at the newest rows."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows with the chosen word. Raises IncorrectLookupParameters for what no text can hold."""
        word: Any = self.value()
        if word and "\x00" in word:
            raise IncorrectLookupParameters(f"{self.parameter_name} contains a NUL character")
        return queryset.filter(Q(**{str(self.parameter_name): word})) if word else queryset

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """Yield the choices, without the mark where an older list began."""
        yield {
            "selected": not self.value(),
            "query_string": changelist.get_query_string(remove=[str(self.parameter_name), BEFORE]),
            "display": gettext("All"),
        }
        name = str(self.parameter_name)
        for word, label in self.lookup_choices:
            yield {
                "selected": self.value() == str(word),
                "query_string": changelist.get_query_string({name: word}, remove=[BEFORE]),
                "display": label,
            }


class NumberFilter(WordFilter):
    """A number that comes from a link; it offers nothing until there is one."""

    def number(self) -> int | None:
        """Return the number. Raises IncorrectLookupParameters if it is not one."""
        value = self.value()
        if value is None:
            return None
        number = as_id(str(value).strip())
        if number is None:
            raise IncorrectLookupParameters(f"{self.parameter_name} must be an id, not {value[:50]!r}")
        return number

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the number in use."""
        value = self.value()
        return [] if value is None else [(value, f"#{value}")]


class JobFilter(NumberFilter):
    """The rows of one job."""

    title = _("job")
    parameter_name = "job"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows of the job."""
        number = self.number()
        return queryset if number is None else queryset.filter(job_id=number)


class BeforeFilter(NumberFilter):
    """Where a list of older rows begins."""

    title = _("rows before")
    parameter_name = BEFORE

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows before the number."""
        number = self.number()
        return queryset if number is None else queryset.filter(pk__lt=number)
