"""A change list whose cost has a bound, however many rows the table holds."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import InvalidPage, Paginator
from django.db.models import QuerySet
from django.http import HttpRequest

from .filters import BEFORE, BeforeFilter, WordFilter

# Rows that one list shows, counts and acts on; older ones are a link away.
LISTED = 10_000
# Rows that one list looks through for a condition that no index answers.
LOOKED_THROUGH = 200_000


class BoundedChangeList(ChangeList):
    """List up to LISTED rows, newest first, found among at most LOOKED_THROUGH, in two queries.

    Nothing is counted in the table: the number shown is the number of ids found. What is older is reached by
    `?before=ID`, which costs the same however far back it leads.
    """

    older_than: int | None = None
    is_cut: bool = False
    lowest: int | None = None

    model_admin: Any

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        """Return the one ordering that has an index, whatever the address asks for."""
        return list(self.model_admin.ordering)

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        """Return the matching rows, not looking further back than LOOKED_THROUGH."""
        queryset = super().get_queryset(request, exclude_parameters)
        if not self._must_look_through():
            return queryset
        rows = self.root_queryset
        for spec in self.filter_specs:
            if isinstance(spec, BeforeFilter):
                rows = spec.queryset(request, rows)
        self.lowest = rows.order_by("-pk").values_list("pk", flat=True)[LOOKED_THROUGH:].first()
        return queryset if self.lowest is None else queryset.filter(pk__gt=self.lowest)

    def get_results(self, request: HttpRequest) -> None:
        """Fetch the ids of the list, and the rows of one page of it."""
        ids = list(self.queryset.values_list("pk", flat=True)[: LISTED + 1])
        self.is_cut = len(ids) > LISTED
        ids = ids[:LISTED]
        if self._is_newest_first():
            if self.is_cut:
                self.older_than = ids[-1]
            elif self.lowest is not None:
                self.older_than = self.lowest + 1
        self.paginator = Paginator(ids, self.list_per_page)
        self.multi_page = len(ids) > self.list_per_page
        try:
            page = self.paginator.page(self.page_num if self.multi_page else 1)
        except InvalidPage:
            raise IncorrectLookupParameters from None
        self.result_list = self.model_admin.rows(request, list(page.object_list))
        self.result_count = len(ids)
        self.full_result_count = None
        self.show_full_result_count = False
        self.show_admin_actions = True
        self.can_show_all = False

    @property
    def older_url(self) -> str | None:
        """The address of the rows before this list's, None if there are none."""
        if self.older_than is None:
            return None
        return self.get_query_string({BEFORE: str(self.older_than)})

    @property
    def looked_through(self) -> int | None:
        """How many rows were looked through, None if all that can match were."""
        return None if self.lowest is None or self.is_cut else LOOKED_THROUGH

    def _is_newest_first(self) -> bool:
        return bool(self.model_admin.ordering[0] == "-pk")

    def _must_look_through(self) -> bool:
        """Whether there is a condition, and no index that bounds the work for it."""
        chosen = {
            str(spec.parameter_name): str(spec.value())
            for spec in self.filter_specs
            if isinstance(spec, WordFilter) and not isinstance(spec, BeforeFilter) and spec.value()
        }
        if not self._is_newest_first() or not (chosen or self.query.strip()):
            return False
        return not self.model_admin.is_bounded(chosen, self.query.strip())
