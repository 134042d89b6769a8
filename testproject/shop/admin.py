from django.contrib import admin, messages
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest

from .models import Order, Receipt, Rendering
from .tasks import send_receipt


class ReadOnlyInline(admin.TabularInline):
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Order | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Order | None = None) -> bool:
        return False


class RenderingInline(ReadOnlyInline):
    model = Rendering


class ReceiptInline(ReadOnlyInline):
    model = Receipt


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ["number", "customer", "email", "amount", "placed_at", "receipt"]
    list_select_related = ["receipt"]
    search_fields = ["number", "customer", "email"]
    inlines = [RenderingInline, ReceiptInline]
    actions = ["send_receipts"]

    @admin.action(description="Send the receipts of the selected orders", permissions=["change"])
    def send_receipts(self, request: HttpRequest, queryset: QuerySet[Order]) -> None:
        with transaction.atomic():
            for order in queryset:
                send_receipt.enqueue(order.pk)
        self.message_user(request, f"{len(queryset)} jobs enqueued.", messages.SUCCESS)


@admin.register(Receipt)
class ReceiptAdmin(admin.ModelAdmin):
    list_display = ["order", "job_id", "generation", "sent_at", "pdf"]
    list_select_related = ["order"]
    search_fields = ["order__number", "=job_id"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Receipt | None = None) -> bool:
        return False
