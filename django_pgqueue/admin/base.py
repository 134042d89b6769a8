"""What the pages of the queue's tables have in common: they show and do not edit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.contrib.admin.utils import flatten_fieldsets
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import FieldDoesNotExist
from django.db.models import Model, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest

from ..database import queue_database
from ..states import as_id
from .changelist import BoundedChangeList

if TYPE_CHECKING:  # Django's class takes no parameter when the program runs
    ModelAdmin = admin.ModelAdmin[Model]
else:
    ModelAdmin = admin.ModelAdmin


class ReadOnlyAdmin(ModelAdmin):
    """Show rows of the queue's database; add and change nothing.

    Every row carries `clock`, the database's statement_timestamp(): ages and leases are judged by that clock.
    """

    list_per_page = 50
    list_max_show_all = 0
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    sortable_by: ClassVar[Any] = ()
    ordering: ClassVar[Any] = ("-pk",)
    list_display: Any = ("__str__",)
    list_filter: ClassVar[Any] = ()
    fieldsets: ClassVar[Any] = None
    actions_on_bottom = False
    large_columns: tuple[str, ...] = ()
    deletable = False

    class Media:
        css = {"all": ["django_pgqueue/admin.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows in the queue's database, without their large columns."""
        queryset = super().get_queryset(request).using(queue_database()).defer(*self.large_columns)
        with_clock: QuerySet[Any] = queryset.annotate(clock=Now())
        return with_clock

    def rows(self, request: HttpRequest, ids: list[Any]) -> list[Any]:
        """Return the rows of one page of the list, in one query."""
        return list(self.listed(self.get_queryset(request).filter(pk__in=ids)).order_by(*self.ordering))

    def listed(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return `queryset` with what only the list shows."""
        return queryset

    def is_bounded(self, chosen: Mapping[str, str], term: str) -> bool:
        """Whether an index bounds the work for these filters and this search, so that all rows can be asked for."""
        return as_id(term.strip()) is not None or "job" in chosen

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the change list class."""
        return BoundedChangeList

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return every field."""
        return flatten_fieldsets(self.get_fieldsets(request, obj)) if self.fieldsets else ()

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Allow the lists' own filters only.

        Any other lookup on a column could read through the table, or guess at what `JobAdmin.redact` hides.
        """
        if lookup in {getattr(spec, "parameter_name", None) for spec in self.list_filter}:
            return True
        try:
            self.opts.get_field(lookup.split("__")[0])
        except FieldDoesNotExist:
            return lookup != "pk" and not lookup.startswith("pk__")
        return False

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody adds rows by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody edits rows by hand; a saved form would overwrite what workers wrote meanwhile."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Only what is `deletable`, with the permission; other records are pruned by the queue, not by hand."""
        return self.deletable and super().has_delete_permission(request, obj)
