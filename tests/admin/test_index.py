"""The index of the app in the admin."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User
from django.urls import reverse

from django_pgqueue.models import Rejection

pytestmark = pytest.mark.django_db
ADDRESS = "/admin/django_pgqueue/"


def refuse(**changes):
    Rejection.objects.create(
        **{"job_id": 1, "generation": 1, "action": "complete", "verdict": "superseded", **changes}
    )


def test_the_index_shows_the_last_day_s_rejected_completions(client):
    client.force_login(User.objects.create_superuser("root"))
    assert "rejected completions" not in client.get(ADDRESS).content.decode()
    refuse()
    refuse(action="fail")
    refuse(action="renew")
    page = client.get(ADDRESS).content.decode()
    assert '<strong class="pgqueue-badge">2</strong>' in page.replace("\n", "")
    assert reverse("admin:django_pgqueue_rejection_changelist") in page


def test_the_index_shows_no_count_to_somebody_who_may_not_see_rejections(client):
    refuse()
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_job"))
    client.force_login(user)
    assert "rejected completions" not in client.get(ADDRESS).content.decode()
