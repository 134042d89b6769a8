"""Model fields that Django has only in an app of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:  # Django's class takes no parameters when the program runs
    Field = models.Field[list[str], list[str]]
else:
    Field = models.Field


class TextArrayField(Field):
    """A PostgreSQL `text[]`, a list of str in Python.

    Django's ArrayField needs `django.contrib.postgres` in INSTALLED_APPS (a check error since 6.1); this app
    asks for one line only, and needs neither lookups nor forms for it.
    """

    description = "list of text"

    def db_type(self, connection: Any) -> str:
        """Return the column's type."""
        return "text[]"

    def get_internal_type(self) -> str:
        """Return a name that no backend maps to something else."""
        return "TextArrayField"

    def value_to_string(self, obj: models.Model) -> Any:
        """Return the list itself, which serializers can write."""
        return self.value_from_object(obj)
