"""What the shop sells, and what its tasks leave behind."""

from django.core.validators import MinValueValidator
from django.db import models


class Order(models.Model):
    number = models.CharField(max_length=20, unique=True)
    customer = models.CharField(max_length=100)
    email = models.EmailField()
    amount = models.DecimalField(max_digits=10, decimal_places=2, validators=[MinValueValidator(0)])
    rendering_seconds = models.FloatField(
        default=0, help_text="How long the slow PDF service of this shop takes for this order."
    )
    placed_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"Order {self.number}"


class Rendering(models.Model):
    """A receipt that was begun: one row for each attempt that got so far, also when it came to nothing."""

    order = models.ForeignKey(Order, models.CASCADE, related_name="renderings")
    job_id = models.BigIntegerField()
    generation = models.BigIntegerField()
    started_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.order}: generation {self.generation} of job {self.job_id}"


class Receipt(models.Model):
    """The receipt of an order; the constraint allows one, however often its task runs."""

    order = models.OneToOneField(Order, models.CASCADE, related_name="receipt")
    job_id = models.BigIntegerField()
    generation = models.BigIntegerField()
    pdf = models.CharField(max_length=500)
    sent_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"Receipt for {self.order}"
