"""The tables that tests fill."""

# In an order that the foreign keys allow.
TABLES = (
    "shop_rendering",
    "shop_receipt",
    "shop_order",
    "django_pgqueue_rejection",
    "django_pgqueue_failure",
    "django_pgqueue_effect",
    "django_pgqueue_worker",
    "django_pgqueue_job",
    "django_admin_log",
    "django_session",
    "auth_user_user_permissions",
    "auth_user_groups",
    "auth_group_permissions",
    "auth_group",
    "auth_user",
)
